// What a program times: the time for which we held a stream idle is taken out of the time between two of its events.
//
// A launch that waits for budget may stand between two events of its stream: then the program would take our wait for its
// kernel's time, and an autotuner choose the wrong kernel. So two events of our own are recorded in that stream, when the
// wait begins and before the launch. Between them the stream has nothing to do, and behind work that was there before they
// are as close as they should be: the device's own clock says how long the stream was idle because of us.
//
// Which waits lie between two events of a program is known by the order of the calls: a stream keeps it.
#pragma once

#include <cstdint>

#include "driver/cuda_api.h"
#include "runtime/contexts.h"

namespace vgpu::sm {

struct HeldSpan;

// One launch's wait.
class Hold {
 public:
  // Once it waits; later calls do nothing.
  void begin(const runtime::Place &place, CUstream stream);
  // Before the launch.
  void end(CUstream stream);

 private:
  HeldSpan *span_ = nullptr;
  bool tried_ = false;
};

// The program recorded an event in a stream, or it is about to destroy one.
void note_record(CUevent event, CUstream stream);
void forget_event(CUevent event);
void forget_events_of(CUstream stream);
void forget_held_of_closed_contexts();

// What lies between two events that both have happened, without what we held their stream. The same where they are of
// different streams, or nothing is known of one.
float without_held(CUevent start, CUevent end, float elapsed_ms);

}  // namespace vgpu::sm
