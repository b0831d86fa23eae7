// The 64-bit words that ranks change by compare-and-swap, and nothing else.
//
//   device word   units:33 | lane:11 | seq:20      the job's total on one device, tagged with its last committed operation
//   lane word     units:33 | seq:31                one rank's share of one kind on one device
//   owner word    state:2 | ns:4 | locked:1 | gen:9 | start:26 | pid:22
//   suspect word  gen:9 | ms:55                    since when a slot's rank has looked dead
//   guard word    state:2 | target:33 | seq:29     what others may make of a lane while its owner lives; see guard.h
//   context word  source:8 | bytes:56              what a bare context takes, and how anybody knows
#pragma once

#include <cstdint>

namespace vgpu::region {

inline constexpr std::uint64_t kUnitBytes = 512;
inline constexpr std::uint64_t kMaxUnits = (std::uint64_t{1} << 33) - 1;

inline constexpr unsigned kSlots = 512;  // slot 0 is root's, the others belong to ranks
inline constexpr unsigned kRootSlot = 0;
inline constexpr unsigned kKinds = 4;

constexpr std::uint64_t units_for(std::uint64_t bytes) { return bytes / kUnitBytes + (bytes % kUnitBytes != 0); }
constexpr std::uint64_t bytes_of(std::uint64_t units) { return units * kUnitBytes; }

template <unsigned Shift, unsigned Width>
struct Field {
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << Width) - 1;
  static constexpr std::uint64_t get(std::uint64_t word) { return (word >> Shift) & kMask; }
  static constexpr std::uint64_t put(std::uint64_t value) { return (value & kMask) << Shift; }
};

struct LaneWord {
  using Seq = Field<0, 31>;
  using Units = Field<31, 33>;

  std::uint64_t units = 0;
  std::uint64_t seq = 0;

  static constexpr LaneWord unpack(std::uint64_t word) { return {Units::get(word), Seq::get(word)}; }
  constexpr std::uint64_t pack() const { return Units::put(units) | Seq::put(seq); }
  constexpr std::uint64_t next_seq() const { return (seq + 1) & Seq::kMask; }
};

struct DeviceWord {
  using Seq = Field<0, 20>;
  using Lane = Field<20, 11>;
  using Units = Field<31, 33>;
  static_assert(kSlots * kKinds == Lane::kMask + 1, "every lane number a device word can hold is a lane");

  std::uint64_t units = 0;
  std::uint64_t lane = 0;
  std::uint64_t seq = 0;  // the low bits of the lane's own sequence number

  static constexpr DeviceWord unpack(std::uint64_t word) { return {Units::get(word), Lane::get(word), Seq::get(word)}; }
  constexpr std::uint64_t pack() const { return Units::put(units) | Lane::put(lane) | Seq::put(seq); }
  constexpr bool is_tagged(std::uint64_t by_lane, std::uint64_t lane_seq) const {
    return lane == by_lane && seq == (lane_seq & Seq::kMask);
  }
};

struct OwnerWord {
  using Pid = Field<0, 22>;
  using Start = Field<22, 26>;
  using Gen = Field<48, 9>;
  using Locked = Field<57, 1>;
  using Ns = Field<58, 4>;
  using State = Field<62, 2>;

  enum : std::uint64_t { kFree = 0, kActive = 1, kExiting = 2 };

  std::uint64_t state = kFree;
  std::uint64_t ns = 0;      // index into the region's table of PID namespaces
  std::uint64_t locked = 0;  // the rank holds the slot's liveness token
  std::uint64_t gen = 0;     // grows by one each time the slot is given back
  std::uint64_t start = 0;   // low bits of the process's start time in clock ticks
  std::uint64_t pid = 0;

  static constexpr OwnerWord unpack(std::uint64_t word) {
    return {State::get(word), Ns::get(word), Locked::get(word), Gen::get(word), Start::get(word), Pid::get(word)};
  }
  constexpr std::uint64_t pack() const {
    return State::put(state) | Ns::put(ns) | Locked::put(locked) | Gen::put(gen) | Start::put(start) | Pid::put(pid);
  }
  static constexpr std::uint64_t freed(std::uint64_t word) { return Gen::put(Gen::get(word) + 1); }
};

struct GuardWord {
  using Seq = Field<0, 29>;
  using Target = Field<29, 33>;
  using State = Field<62, 2>;

  enum : std::uint64_t { kClosed = 0, kOpen = 1, kFixed = 2 };

  std::uint64_t state = kClosed;
  std::uint64_t target = 0;  // units
  std::uint64_t seq = 0;     // the low bits of the lane's own sequence number when it was opened

  static constexpr GuardWord unpack(std::uint64_t word) {
    return {State::get(word), Target::get(word), Seq::get(word)};
  }
  constexpr std::uint64_t pack() const { return State::put(state) | Target::put(target) | Seq::put(seq); }
  constexpr bool is_about(const LaneWord &lane) const { return seq == (lane.seq & Seq::kMask); }
};

struct ContextWord {
  using Bytes = Field<0, 56>;
  using Source = Field<56, 8>;

  std::uint64_t bytes = 0;
  std::uint64_t source = 0;  // a ContextSource

  static constexpr ContextWord unpack(std::uint64_t word) { return {Bytes::get(word), Source::get(word)}; }
  constexpr std::uint64_t pack() const { return Bytes::put(bytes) | Source::put(source); }
};

struct SuspectWord {
  using Ms = Field<0, 55>;
  using Gen = Field<55, 9>;

  std::uint64_t gen = 0;
  std::uint64_t ms = 0;  // CLOCK_MONOTONIC

  static constexpr SuspectWord unpack(std::uint64_t word) { return {Gen::get(word), Ms::get(word)}; }
  constexpr std::uint64_t pack() const { return Gen::put(gen) | Ms::put(ms); }
};

}  // namespace vgpu::region
