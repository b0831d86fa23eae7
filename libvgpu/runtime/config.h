// What this process was told: which region it belongs to, and whose regions it may believe.
//
// Read once, as early as somebody asks: a program may clear its environment. Nothing is opened or checked here.
#pragma once

#include "region/owner.h"

namespace vgpu::runtime {

// The directory of the region: the one the plugin bound to /run/vgpu/self, else VGPU_REGION. Null: this process was told
// nothing, and the library does nothing.
const char *region_directory();
// Whose region that must be.
region::Trust region_trust();

// The site's choice, in the file `node` beside the region: whether a process may go on without its region.
bool site_fails_open();

}  // namespace vgpu::runtime
