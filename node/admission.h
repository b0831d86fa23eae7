// Whether a job's memory limits still fit on the GPUs beside those of the jobs that are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "directory.h"
#include "region_limits.h"

namespace vgpu::node {

// What processes can have of a device: without what the driver keeps for itself, where that is known.
std::uint64_t usable_memory(const region::DeviceSpec &device);

// Under the admission lock. Fault::invalid: it does not fit; the sentence names the holders. What regions hold that cannot
// be read is not known, and not counted: `unreadable` says which they are.
Error admit(const RegionDirectory &directory, std::uint64_t overcommit_percent, const std::string &job,
            const std::vector<region::DeviceSpec> &devices, std::vector<Error> *unreadable);

// The same, without looking at the node: for tests.
Error admit_beside(const std::vector<RegionLimits> &others, std::uint64_t overcommit_percent, const std::string &job,
                   const std::vector<region::DeviceSpec> &devices);

}  // namespace vgpu::node
