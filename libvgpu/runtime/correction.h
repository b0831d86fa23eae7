// Makes the charge for untracked memory what a look shows.
#pragma once

#include "untracked_books.h"

namespace vgpu::runtime {

enum class IfOver : std::uint8_t { refuse, charge };

struct Correction {
  region::Kind kind = region::Kind::other;
  IfOver if_over = IfOver::charge;
  std::uint64_t gone = 0;       // has probably been given back, which decides where a look leaves it open
  std::uint64_t own = 0;        // reserved for the call that is being settled
  std::uint64_t elsewhere = 0;  // what this process made, has freed, and others hold without being charged for it
};

enum class Corrected : std::uint8_t { done, over, unknown };

// NVML is asked with no mutex held.
Corrected correct(unsigned dev, UntrackedBooks &books, Correction correction);
// Until NVML shows what is guessed, or cannot, or time is up.
Corrected wait_for_nvml(unsigned dev, UntrackedBooks &books, const Correction &correction = {});
inline constexpr std::uint64_t kPatienceNs = 500'000'000;
inline constexpr std::uint64_t kPollNs = 10'000'000;

// What the first context of a process took is what a context takes; later ones share with it.
void note_first_context(unsigned dev, UntrackedBooks &books);

// Whether a call of a program can have a look of its own.
bool deserves_look(unsigned dev, UntrackedBooks &books);

}  // namespace vgpu::runtime
