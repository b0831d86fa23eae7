#pragma once

#include "layout.h"

namespace vgpu {

// When it returns, every later success of commit() has seen the new limit. One caller at a time (the OFD lock on
// `limits`); any caller may have died at any step before.
void set_memory_limit(const Usage &usage, unsigned dev, Word &limit, std::uint64_t bytes);

}  // namespace vgpu
