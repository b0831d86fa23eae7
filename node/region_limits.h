// The regions of this node as root sees them: what they promise, not what their ranks do.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "directory.h"
#include "region/region.h"

namespace vgpu::node {

struct Promise {
  std::string name;  // of its directory: the job id
  region::JobIdentity job = {};
  std::vector<region::DeviceSpec> devices;
};

// Only `limits` is read: the user can spoil `usage`, and must not be able to hide what he holds.
Error read_promise(const RegionDirectory &directory, const std::string &name, region::Trust trust, Promise *promise);
// Of the regions that root made. Directories without a region, such as those with an error in them, are left out. Any other trouble is an error.
Error list_promises(const RegionDirectory &directory, std::vector<Promise> *promises);

}  // namespace vgpu::node
