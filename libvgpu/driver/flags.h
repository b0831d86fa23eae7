// What must be known of this process before a program's question for a function is answered.
//
// The flags lie here because hooks are chosen by them. Runtime decides them, at the first question: that can be earlier
// than any constructor, when another library's initialiser asks for a symbol.
#pragma once

#include <atomic>
#include <cstdint>

namespace vgpu::driver {

enum class Flag : std::uint8_t { undecided, no, yes };

// Each is decided once. Written by the two functions below, read by whoever asks.
extern std::atomic<Flag> region_expected;
extern std::atomic<Flag> launches_metered;

// Defined by runtime. `undecided`: too early even for that; the next question decides.
Flag decide_region_expected();
Flag decide_launches_metered();

// This process was told of a region. If not, the library does nothing in it.
inline bool region_is_expected() {
  const Flag known = region_expected.load(std::memory_order_acquire);
  return (known != Flag::undecided ? known : decide_region_expected()) == Flag::yes;
}

// Launches are held to an SM share: the job started with one.
inline bool launches_are_metered() {
  // Relaxed: nothing else is reached through it.
  const Flag known = launches_metered.load(std::memory_order_relaxed);
  return (known != Flag::undecided ? known : decide_launches_metered()) == Flag::yes;
}

}  // namespace vgpu::driver
