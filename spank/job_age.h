// When a job started, as the controller knows it: what a job's environment says is its user's.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace vgpu::spank {

// In seconds since 1970.
Error job_start(std::uint32_t job_id, std::int64_t *seconds);

}  // namespace vgpu::spank
