// Sums that fade, of what launches were charged and of what they would have cost one by one.
#pragma once

#include "region/layout.h"
#include "region/sm_words.h"

namespace vgpu::sm {

// How much of their costs the job's launches are charged lately: less than 1 where they overlap. 1 until that is known.
double current_pace(const region::Word &pace);

// Adds a batch to two sums that fade while costs are added, to a half by `fade_ns` at once. Returns the sums. Any
// thread or rank, by CAS; relaxed: the word is all there is to know.
region::PaceWord add_fading(region::Word &word, double charged_ns, double cost_ns, double fade_ns);

}  // namespace vgpu::sm
