// What this process was told: which region it belongs to, and how much to say.
//
// Read once, as early as somebody asks: a program may clear its environment. Nothing is opened or checked here.
#pragma once

namespace vgpu {

// The directory of the region: /run/vgpu/self where the plugin bound it, else VGPU_REGION. Null: this process was told
// nothing, and the library does nothing.
const char *region_directory();

inline bool region_is_expected() { return region_directory() != nullptr; }

// Inside a Slurm job only root's regions count.
bool inside_slurm_job();

// The site's choice, in the file `node` beside the region: whether a process may go on without its region.
bool site_fails_open();

}  // namespace vgpu
