// Whether the site shares its GPUs by MPS.
#pragma once

namespace vgpu::spank {

// Root runs an MPS control daemon on this node. One that a job started does not count: it would be a way out of the limit.
bool site_runs_mps();

}  // namespace vgpu::spank
