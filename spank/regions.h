// The regions of this node as root sees them: what they promise, not what their ranks do.
#pragma once

#include <string>
#include <vector>

#include "config.h"
#include "region/error.h"
#include "region/region.h"

namespace vgpu::spank {

struct Promise {
  std::string name;  // of its directory: the job id
  JobIdentity job = {};
  std::vector<DeviceSpec> devices;
};

// Only `limits` is read: the user can spoil `usage`, and must not be able to hide what he holds.
Error read_promise(const Config &config, const std::string &name, Promise *promise);
// Directories without a region, such as those with an error in them, are left out. Any other trouble is an error.
Error list_promises(const Config &config, std::vector<Promise> *promises);

}  // namespace vgpu::spank
