// The limits of the regions of a node, and for whom they are; not what their ranks use.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "directory.h"
#include "region/region.h"

namespace vgpu::node {

struct RegionLimits {
  std::string name;  // of its directory: the job id
  region::JobIdentity job = {};
  std::uint64_t created = 0;  // tells it from an earlier region of the same job
  std::vector<region::DeviceSpec> devices;
};

// Only `limits` is read: the user can spoil `usage`, and must not be able to hide what the job holds.
Error read_region_limits(const RegionDirectory &directory, const std::string &name, region::Trust trust,
                         RegionLimits *limits);
// Of the regions that root made. Directories without a region, such as those with an error in them, are left out; those
// that are damaged or of another release are in `unreadable`, so that one of them does not stand in the way of all jobs.
Error list_region_limits(const RegionDirectory &directory, std::vector<RegionLimits> *all,
                         std::vector<Error> *unreadable);

}  // namespace vgpu::node
