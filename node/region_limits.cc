#include "region_limits.h"

#include <fcntl.h>

#include "base/scoped.h"
#include "region/files.h"

namespace vgpu::node {

Error read_region_limits(const RegionDirectory &directory, const std::string &name, region::Trust trust,
                         RegionLimits *limits) {
  const std::string path = directory.job(name).path();
  region::RegionFiles files;
  if (Error error = open_limits(path.c_str(), trust, O_RDONLY, &files)) return error;
  const unsigned ndev = files.header.ndev;
  const ScopedMapping mapping(files.limits.get(), region::limits_size(ndev), PROT_READ);
  if (!mapping) return system_error("cannot map %s/%s", path.c_str(), region::kLimitsName);
  const auto &file = *static_cast<const region::LimitsFile *>(mapping.get());
  RegionLimits found = {name, files.job, files.header.created, {}};
  for (unsigned dev = 0; dev < ndev; ++dev) {
    const region::DeviceLimits &device = file.devices[dev];
    region::DeviceSpec spec;
    spec.identity = device.identity;
    spec.memory_limit = device.memory_bytes.load(std::memory_order_acquire);
    spec.sm_percent = device.sm_percent.load(std::memory_order_acquire);
    spec.context = known_context(device);
    spec.usable_bytes = device.usable_bytes.load(std::memory_order_relaxed);
    spec.block_bytes = device.block_bytes.load(std::memory_order_relaxed);
    found.devices.push_back(spec);
  }
  *limits = std::move(found);
  return {};
}

Error list_region_limits(const RegionDirectory &directory, std::vector<RegionLimits> *all,
                         std::vector<Error> *unreadable) {
  const ScopedDirectory open_directory(opendir(directory.path().c_str()));
  if (!open_directory) return system_error("cannot read %s", directory.path().c_str());
  std::vector<RegionLimits> found;
  std::vector<Error> troubles;
  while (const dirent *entry = readdir(open_directory.get())) {
    if (!is_job_id(entry->d_name)) continue;
    RegionLimits limits;
    if (Error error = read_region_limits(directory, entry->d_name, region::Trust::root, &limits)) {
      if (error.fault == Fault::not_found) continue;
      if (error.fault == Fault::system) return error;  // ours, not the region's
      troubles.push_back(error);
      continue;
    }
    found.push_back(std::move(limits));
  }
  *all = std::move(found);
  *unreadable = std::move(troubles);
  return {};
}

}  // namespace vgpu::node
