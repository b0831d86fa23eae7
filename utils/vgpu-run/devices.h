// The GPUs of the machine that the ranks get, with their limits.
#pragma once

#include <string>
#include <vector>

#include "options.h"
#include "region/region.h"

namespace vgpu::run {

Error find_devices(const Options &options, std::vector<region::DeviceSpec> *devices);

// As CUDA_VISIBLE_DEVICES wants it.
std::string uuid_list(const std::vector<region::DeviceSpec> &devices);

}  // namespace vgpu::run
