// Calls that are counted where others can see it: which have been entered, and which have returned. For tests that must
// know whether a process is inside the driver. Only on nodes whose description says `count_calls = yes`.
#pragma once

#include "simgpu/node/layout.h"

namespace simgpu {

// This process's slot if its calls are counted; null before there is a link to the node, and in a forked child, which does
// not have that memory.
ProcessSlot *counted_slot();
void set_counted_slot(ProcessSlot *slot);

class CountedCall {
 public:
  CountedCall() : slot_(counted_slot()) {
    if (slot_ != nullptr) slot_->calls.fetch_add(1, std::memory_order_relaxed);
  }
  // Release: whoever sees that the call has returned sees what it did.
  ~CountedCall() {
    if (slot_ != nullptr && slot_ == counted_slot()) slot_->returned.fetch_add(1, std::memory_order_release);
  }
  CountedCall(const CountedCall &) = delete;
  CountedCall &operator=(const CountedCall &) = delete;

 private:
  ProcessSlot *slot_;
};

}  // namespace simgpu
