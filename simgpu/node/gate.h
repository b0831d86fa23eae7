// What every call of a client passes before it reaches the simulator's function. Without faults, and where calls are not
// counted, that is two loads and a jump.
#pragma once

#include <type_traits>

#include "simgpu/node/counted_call.h"
#include "simgpu/node/fault_word.h"

namespace simgpu {

// The names of the library's functions, in the order of their numbers. Generated.
extern const char *const kGateNames[];
extern const unsigned kGates;

constexpr int kCurrent = -1;  // a call that names no device is about that of the current context

// What a device that was lost, or a driver that does not care to, answers to a call; 0 when it is made. Each library has
// its own.
int lost_result(unsigned function, int device);

// Whether the library wants to be asked before each call, faults or not. Each has its own.
bool needs_every_call();

// What was asked for, of one call.
struct Fault {
  int result = 0;  // not 0: the call fails with this, and does nothing
  bool kill_after = false;
};

// Counts the call, delays it, ends the process: whatever the rules say before it takes effect.
Fault meet_faults(unsigned function, int device);
[[noreturn]] void kill_this_process();

template <typename Result, typename... Parameters>
[[gnu::noinline, gnu::cold]] Result faulty_call(unsigned function, int device, Result (*inner)(Parameters...),
                                                Parameters... arguments) {
  const CountedCall counted;
  const Fault fault = meet_faults(function, device);
  if (fault.result != 0) return static_cast<Result>(fault.result);
  const Result result = inner(arguments...);
  if (fault.kill_after) kill_this_process();
  return result;
}

template <typename Result, typename... Parameters>
[[gnu::always_inline]] inline Result gate(unsigned function, int device, Result (*inner)(Parameters...),
                                          std::type_identity_t<Parameters>... arguments) {
  if (__builtin_expect(may_be_faulty(), false)) return faulty_call(function, device, inner, arguments...);
  return inner(arguments...);
}

}  // namespace simgpu
