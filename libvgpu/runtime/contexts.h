// Which context an allocation goes down with, and on which device of the region that is.
#pragma once

#include <cstdint>

#include "base/wiped.h"
#include "driver/table.h"

namespace vgpu::runtime {

struct Place {
  unsigned context = 0;      // 0: more contexts than we keep track of
  int dev = 0;               // kNotInJob: not a device of this job
  CUdevice ordinal = 0;      // CUDA's number of it
  std::uint32_t serial = 0;  // of the context, and never another's; 0: as above
};

// What a thread remembers of its last look-up, for as long as no context goes: then the epoch changes.
struct Remembered {
  CUcontext context;
  std::uint32_t epoch;  // 0: nothing
  Place place;
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit Remembered remembered;
extern constinit WipedOnFork<std::atomic<std::uint32_t>> context_epoch;
bool look_up_place(CUcontext current, Place *place);

// Where the calling thread's current context is. Null: it has none, or it takes a closer look. The driver is asked each
// time, because what changes the current context need not come by here.
inline const Place *remembered_place(CUcontext *current) {
  *current = nullptr;
  const std::atomic<std::uint32_t> *epoch = context_epoch.get();
  if (epoch == nullptr || REAL(cuCtxGetCurrent)(current) != CUDA_SUCCESS || *current == nullptr) return nullptr;
  const bool same = remembered.context == *current && remembered.epoch == epoch->load(std::memory_order_acquire);
  return same ? &remembered.place : nullptr;
}

// Where the calling thread would allocate now. False: it has no current context.
inline bool current_place(Place *place) {
  CUcontext current;
  const Place *known = remembered_place(&current);
  if (known == nullptr) return current != nullptr && look_up_place(current, place);
  *place = *known;
  return true;
}

// Where a context is that this process made. False: not one that we know.
bool known_place(CUcontext context, Place *place);

bool context_is_open(std::uint32_t serial);

// A context that was made, or a primary one that was retained.
void context_opened(CUcontext context, CUdevice ordinal);
// One more, one less use of a context (cuCtxAttach, cuCtxDetach). The latter says how many are left.
void context_attached(CUcontext context);
unsigned context_detached(CUcontext context);
// Before the driver destroys it, because its handle can be another context's before the driver's call returns. From here
// on only its number stands for it; 0: not one that we know.
unsigned context_closing(CUcontext context);
// The driver did not destroy it.
void context_kept(unsigned number);
// After the driver destroyed it: all that was allocated in it is given back, but not what was charged for itself.
struct ClosedContext {
  int dev;  // or kNotInJob
  std::uint64_t charged = 0;
};
ClosedContext context_closed(unsigned number);
// What a context itself is charged for. What was guessed is corrected by what NVML says of all of them.
void context_charged(CUcontext context, std::uint64_t bytes, bool guessed);
void correct_context_charges(unsigned dev, std::int64_t bytes);
// The primary context of a device, if one was retained; null if not.
CUcontext primary_context(CUdevice ordinal);
void primary_retained(CUcontext context, CUdevice ordinal);

// Green contexts: names for a part of a device, whose memory is its primary context's.
void green_opened(CUgreenCtx green, CUcontext primary);
void green_converted(CUgreenCtx green, CUcontext context);
// As with contexts: before the driver destroys it, and afterwards, when it is gone or was kept.
void green_closing(CUgreenCtx green);
void green_closed(CUgreenCtx green);
void green_kept(CUgreenCtx green);
bool green_place(CUgreenCtx green, Place *place);

unsigned live_contexts(unsigned dev);

}  // namespace vgpu::runtime
