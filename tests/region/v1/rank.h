// A rank of layout 1, as released: its words, its offsets and its one operation, frozen.
//
// The one copy in this project that is wanted. Jobs that were started before an update go on with the library they have
// mapped; what that library does to the files must stay right whatever becomes of libvgpu/region. So nothing here may
// include or follow the region library: a change there that does not get along with this file breaks running jobs.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

namespace vgpu::test::v1 {

using Word = std::atomic<std::uint64_t>;

inline constexpr std::uint64_t kUnit = 512;
inline constexpr unsigned kSlots = 512;
inline constexpr unsigned kKinds = 4;
inline constexpr unsigned kDevices = 1;  // of the regions in the tests

// ---- where everything lies ------------------------------------------------------------------------------------------

inline constexpr std::size_t kLimitsDevices = 192;
inline constexpr std::size_t kLimitsSize = kLimitsDevices + kDevices * 960;
inline constexpr std::size_t kNamespacesAt = 128;
inline constexpr std::size_t kOwnersAt = 256;
inline constexpr std::size_t kDevicesAt = 8448;
inline constexpr std::size_t kSlotsAt = kDevicesAt + kDevices * 192;
inline constexpr std::size_t kSlotSize = (1 + kDevices) * 64;
inline constexpr std::size_t kUsageSize = kSlotsAt + kSlots * kSlotSize;

struct Header {
  char magic[8];
  std::uint32_t layout = 1;
  std::uint32_t ndev = kDevices;
  std::uint64_t file_size;
  std::uint32_t slots = kSlots;
  std::uint32_t reserved = 0;
  std::uint8_t id[16] = {1, 2, 3, 4};
  std::uint64_t checksum = 0;
  std::uint64_t created = 1'700'000'000;
};
static_assert(sizeof(Header) == 64);

inline std::uint64_t fnv1a(std::uint64_t hash, const void *data, std::size_t size) {
  const auto *bytes = static_cast<const unsigned char *>(data);
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

inline bool write_file(const std::string &path, const std::string &bytes, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool ok =
      fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && fchmod(fd, mode) == 0;
  if (fd >= 0) close(fd);
  return ok;
}

// A region of one device, byte for byte.
inline bool write_region(const std::string &directory, std::uint64_t job, std::uint32_t uid, std::uint64_t limit) {
  Header header;
  std::memcpy(header.magic, "vgpuLIM\n", 8);
  header.file_size = kLimitsSize;
  std::string limits(kLimitsSize, '\0');
  std::memcpy(&limits[64], &job, 8);
  std::memcpy(&limits[72], &uid, 4);
  const std::uint32_t whole = 100;
  const std::uint64_t memory = std::uint64_t{16} << 30;
  const std::int32_t numa = -1;
  std::memcpy(&limits[kLimitsDevices], &limit, 8);
  std::memcpy(&limits[kLimitsDevices + 8], &whole, 4);
  std::memcpy(&limits[kLimitsDevices + 64], "GPU-v1", 6);
  std::memcpy(&limits[kLimitsDevices + 64 + 96], &memory, 8);
  std::memcpy(&limits[kLimitsDevices + 64 + 104], &numa, 4);
  header.checksum = fnv1a(0xcbf29ce484222325u, &header, sizeof header);
  header.checksum = fnv1a(header.checksum, &limits[64], 16);
  header.checksum = fnv1a(header.checksum, &limits[kLimitsDevices + 64], 896);
  std::memcpy(limits.data(), &header, sizeof header);

  Header use;
  std::memcpy(use.magic, "vgpuUSE\n", 8);
  use.file_size = kUsageSize;
  use.checksum = fnv1a(0xcbf29ce484222325u, &use, sizeof use);
  std::string usage(kUsageSize, '\0');
  std::memcpy(usage.data(), &use, sizeof use);
  return write_file(directory + "/limits", limits, 0644) && write_file(directory + "/usage", usage, 0600) &&
         write_file(directory + "/lock", "\0", 0600);
}

// ---- words ----------------------------------------------------------------------------------------------------------

struct LaneWord {  // units:33 | seq:31
  std::uint64_t units, seq;
  static LaneWord of(std::uint64_t word) { return {word >> 31, word & 0x7fffffff}; }
  std::uint64_t word() const { return units << 31 | (seq & 0x7fffffff); }
  std::uint64_t next_seq() const { return (seq + 1) & 0x7fffffff; }
};

struct DeviceWord {  // units:33 | lane:11 | seq:20
  std::uint64_t units, lane, seq;
  static DeviceWord of(std::uint64_t word) { return {word >> 31, word >> 20 & 0x7ff, word & 0xfffff}; }
  std::uint64_t word() const { return units << 31 | lane << 20 | (seq & 0xfffff); }
  bool is_tagged(std::uint64_t by, std::uint64_t lane_seq) const { return lane == by && seq == (lane_seq & 0xfffff); }
};

// ---- the rank -------------------------------------------------------------------------------------------------------

struct Self {  // as liveness.h says it
  std::uint64_t pid, start_time, namespaces;
};

class Rank {
 public:
  // A rank that could not take its token: it lives as long as its process.
  bool attach(const std::string &directory, const Self &self) {
    const int limits = open((directory + "/limits").c_str(), O_RDONLY | O_CLOEXEC);
    const int usage = open((directory + "/usage").c_str(), O_RDWR | O_CLOEXEC);
    limits_ = map(limits, kLimitsSize, PROT_READ);
    usage_ = map(usage, kUsageSize, PROT_READ | PROT_WRITE);
    close(limits);
    close(usage);
    if (limits_ == nullptr || usage_ == nullptr) return false;
    std::uint64_t ns = 0;
    for (; ns < 15; ++ns) {
      std::uint64_t seen = 0;
      Word &entry = word(kNamespacesAt + ns * 8);
      if (entry.compare_exchange_strong(seen, self.namespaces) || seen == self.namespaces) break;
    }
    for (slot_ = 1; slot_ < kSlots; ++slot_) {
      Word &owner = word(kOwnersAt + slot_ * 8);
      std::uint64_t seen = owner.load();
      if (seen >> 62 != 0) continue;
      const std::uint64_t start = self.start_time & 0x3ffffff;
      const std::uint64_t mine = std::uint64_t{1} << 62 | ns << 58 | (seen & 0x1ffull << 48) | start << 22 | self.pid;
      if (owner.compare_exchange_strong(seen, mine)) return true;
    }
    return false;
  }

  bool reserve(unsigned kind, std::uint64_t bytes) { return change(kind, true, (bytes + kUnit - 1) / kUnit); }
  void release(unsigned kind, std::uint64_t bytes) { change(kind, false, (bytes + kUnit - 1) / kUnit); }
  std::uint64_t used() const { return DeviceWord::of(total().load()).units * kUnit; }

 private:
  struct Operation {
    std::uint64_t lane;
    LaneWord from, to;
  };

  static char *map(int fd, std::size_t size, int access) {
    void *memory = fd < 0 ? MAP_FAILED : mmap(nullptr, size, access, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
  }
  Word &word(std::size_t offset) const { return *reinterpret_cast<Word *>(usage_ + offset); }
  Word &total() const { return word(kDevicesAt); }
  Word &current(std::uint64_t lane) const {
    return word(kSlotsAt + lane / kKinds * kSlotSize + 64 + lane % kKinds * 16);
  }
  Word &next(std::uint64_t lane) const { return *(&current(lane) + 1); }
  std::uint64_t limit_units() const { return reinterpret_cast<Word *>(limits_ + kLimitsDevices)->load() / kUnit; }

  void help(std::uint64_t seen) const {
    const DeviceWord tag = DeviceWord::of(seen);
    std::uint64_t now = current(tag.lane).load();
    const LaneWord from = LaneWord::of(now);
    if (!tag.is_tagged(tag.lane, from.next_seq())) return;
    const std::uint64_t then = next(tag.lane).load();
    if (LaneWord::of(then).seq != from.next_seq() || total().load() != seen) return;
    current(tag.lane).compare_exchange_strong(now, then);
  }

  bool commit(const Operation &operation, bool limited) const {
    for (;;) {
      std::uint64_t seen = total().load();
      if (current(operation.lane).load() != operation.from.word()) return true;
      const DeviceWord tag = DeviceWord::of(seen);
      if (tag.is_tagged(operation.lane, operation.to.seq)) {
        help(seen);
        return true;
      }
      const std::uint64_t units = tag.units - operation.from.units + operation.to.units;
      if (limited && units > limit_units()) return false;
      help(seen);
      const DeviceWord made = {units, operation.lane, operation.to.seq};
      if (!total().compare_exchange_strong(seen, made.word())) continue;
      std::uint64_t expected = operation.from.word();
      current(operation.lane).compare_exchange_strong(expected, operation.to.word());
      return true;
    }
  }

  bool change(unsigned kind, bool grow, std::uint64_t units) const {
    const std::uint64_t lane = slot_ * kKinds + kind;
    const LaneWord from = LaneWord::of(current(lane).load());
    const LaneWord to = {grow ? from.units + units : from.units - std::min(from.units, units), from.next_seq()};
    next(lane).store(to.word());
    return commit({lane, from, to}, grow);
  }

  char *limits_ = nullptr;
  char *usage_ = nullptr;
  unsigned slot_ = 0;
};

}  // namespace vgpu::test::v1
