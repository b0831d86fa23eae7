// preload=ldso: a task in a mount namespace of its own, where the library is preloaded and the region is found by files
// that only root can change. Unsetting or editing variables then changes nothing.
#pragma once

#include <string>

#include "config.h"
#include "region/error.h"

namespace vgpu::spank {

// As root, while a step starts: the file that will lie over /etc/ld.so.preload in its tasks.
Error prepare_isolation(const Config &config);
// As root, in the task itself, which must have one thread.
Error isolate_task(const Config &config, std::uint32_t job_id);

}  // namespace vgpu::spank
