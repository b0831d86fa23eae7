// A job's `usage` lies on a file system of its own, mounted where the prolog ran. Namespace plugins (job_container/tmpfs) give
// jobs a mount namespace that was made before, and does not hear of later mounts: there it has to be mounted by the task.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/scoped.h"
#include "node/site_config.h"

namespace vgpu::spank {

// Whether this kernel can bring a mount into another namespace (Linux 5.2).
bool can_carry_mounts();

// In slurmstepd: the mount, for its tasks to take along. Empty where there is none.
ScopedFd hold_usage(const node::SiteConfig &config, std::uint32_t job_id);

// As root, in the task: there it is, or why not.
Error show_usage(const node::SiteConfig &config, std::uint32_t job_id, const ScopedFd &usage);

}  // namespace vgpu::spank
