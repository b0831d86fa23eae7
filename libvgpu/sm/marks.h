// Marks: events of our own before and behind a batch of launches, read the next time the program launches or
// synchronises. They tell when the device was done with a batch. Never waits for the device.
#pragma once

#include "batch.h"
#include "device_clock.h"
#include "driver/cuda_api.h"
#include "runtime/contexts.h"

namespace vgpu::sm {

// The streams that a batch was launched into, each of which gets a mark behind it.
struct BatchStreams {
  // In how many streams a batch can be marked. Programs with more at a time are charged by what their launches cost one
  // by one, which is too much where they overlap. More: memory of every thread.
  static constexpr unsigned kMost = 8;

  CUstream recent[kMost];  // where the fast path looks for a stream
  CUstream all[kMost];
  unsigned count;
  bool overflow;  // there were more

  static unsigned place(CUstream stream) {
    const auto handle = reinterpret_cast<std::uintptr_t>(stream);
    return (handle >> 7 ^ handle) % kMost;
  }
  bool has_recent(CUstream stream) const { return recent[place(stream)] == stream; }
  void begin(CUstream first);
  void add(CUstream stream);
};

// A batch and its marks.
struct MarkedBatch {
  static constexpr unsigned kMarks = 1 + BatchStreams::kMost;  // the one before it, and those behind
  enum State : std::uint8_t {
    free,
    recording,  // its thread makes events and records them: the mark before the batch, later those behind
    open,       // its thread launches into it; if that takes very long another thread may take the marks away
    pending,    // all are recorded; the device may not have come to them
  };

  std::atomic<std::uint64_t> state;  // ticket | State in the lowest two bits; every user has a ticket of its own
  // These two are also read by threads that look for marks, and may then be those of a later user: a hint. Relaxed.
  std::atomic<std::uint32_t> context;  // serial number of the context that the events belong to; 0: there are none yet
  std::atomic<std::uint64_t> opened_ns;
  unsigned made;  // events
  CUevent events[kMarks];
  Recorded recorded[kMarks];
  unsigned count;  // of marks behind
  bool idle;       // nothing of this process was under way when it began
  Batch batch;
};

// The marks of one process on one device. All zeroes is its beginning.
struct Marks {
  // How many batches can be open or under way at a time. Fewer: threads find none, and their batches are charged by what
  // their launches cost one by one. More: memory, and time that read_marks() takes.
  static constexpr unsigned kMost = 64;

  std::atomic<bool> locked;            // tried, never waited for; who has it reads and writes the clock and its base
  std::atomic<std::uint32_t> pending;  // batches whose marks are to be read
  std::atomic<std::uint64_t> tickets;
  // How much later than the device a synchronisation returns, at least; 0: unknown. Any thread, relaxed.
  std::atomic<std::uint64_t> sync_latency_ns;

  DeviceClock clock;
  // The event that the times of others are counted from, and its successor, which is being recorded.
  CUevent base, next_base;
  std::uint32_t base_context;  // 0: there is none
  std::uint64_t base_ns;       // the device's time of it
  std::uint64_t base_recorded_ns;
  bool next_recorded;

  MarkedBatch all[kMost];
};

// The marks of a thread's batch.
struct MarksInUse {
  MarkedBatch *marks = nullptr;  // null: none
  std::uint64_t ticket = 0;
  std::uint64_t destroyed = 0;  // streams, when the batch began
};

// Before the first launch of a batch, in the current context: puts a mark in front of it. Null: it cannot be marked.
MarksInUse begin_marks(Marks &marks, const runtime::Place &place, CUstream stream, std::uint64_t now_ns);
// Behind its last launch, still in that context.
void end_marks(Marks &marks, const MarksInUse &in_use, const Batch &batch, const BatchStreams &streams);
// The batch is not marked after all.
void drop_marks(const MarksInUse &in_use);

// A synchronisation of this batch has returned.
struct Synchronised {
  std::uint64_t ticket = 0;
  std::uint64_t returned_ns = 0;
};
// Settles the batches of the current context that the device is done with. True: see settle().
bool read_marks(Marks &marks, const runtime::Place &place, const JobDevice &job, Meter &meter, Costs &costs,
                std::uint32_t percent, const Synchronised &synchronised);

// Before the driver destroys a stream: no mark is put into it from here on.
void forget_stream(CUstream stream);

}  // namespace vgpu::sm
