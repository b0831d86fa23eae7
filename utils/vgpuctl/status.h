// The exit statuses of vgpuctl.
#pragma once

namespace vgpu::ctl {

// vgpuctl's exit status; see vgpuctl.1.
enum Status : int {
  kOk = 0,
  kRefused = 1,    // usage, permission, or a part of the system that does not work
  kNoJob = 2,      // no such job on this node
  kCorrupt = 3,    // a region is corrupted, or of another version
  kStale = 4,      // check, gc --dry-run: something is there that nobody uses
  kUncounted = 5,  // audit: somebody holds memory that nobody counts
};

}  // namespace vgpu::ctl
