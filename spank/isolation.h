// preload=ldso: a task in a mount namespace of its own, where the library is preloaded and the region is found by files
// that only root can change. Unsetting or editing variables then changes nothing.
#pragma once

#include <string>

#include "base/error.h"
#include "node/site_config.h"

namespace vgpu::spank {

// As root, while a step starts: the file that will lie over /etc/ld.so.preload in its tasks.
Error prepare_isolation(const node::SiteConfig &config);
// As root, in the task itself, which must have one thread.
Error isolate_task(const node::SiteConfig &config, std::uint32_t job_id);

}  // namespace vgpu::spank
