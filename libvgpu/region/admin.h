#pragma once

#include "layout.h"

namespace vgpu::region {

// The second half of a live limit change, after the new limit was stored (with release): when it returns, every later
// success of commit() has seen that limit or a newer one. One caller at a time (the OFD lock on `lock`); any caller may
// have died at any step before.
void retire_old_limit(const Usage &usage, unsigned dev);

}  // namespace vgpu::region
