#include "region_limits.h"

#include <fcntl.h>

#include "base/scoped.h"
#include "region/files.h"

namespace vgpu::node {

Error read_promise(const RegionDirectory &directory, const std::string &name, region::Trust trust, Promise *promise) {
  const std::string path = directory.job(name).path();
  region::RegionFiles files;
  if (Error error = open_limits(path.c_str(), trust, O_RDONLY, &files)) return error;
  const unsigned ndev = files.header.ndev;
  const ScopedMapping mapping(files.limits.get(), region::limits_size(ndev), PROT_READ);
  if (!mapping) return system_error("cannot map %s/%s", path.c_str(), region::kLimitsName);
  const auto &limits = *static_cast<const region::LimitsFile *>(mapping.get());
  Promise found = {name, files.job, {}};
  for (unsigned dev = 0; dev < ndev; ++dev) {
    const region::DeviceLimits &device = limits.devices[dev];
    found.devices.push_back({device.identity, device.memory_bytes.load(std::memory_order_acquire),
                             device.sm_percent.load(std::memory_order_acquire)});
  }
  *promise = std::move(found);
  return {};
}

Error list_promises(const RegionDirectory &directory, std::vector<Promise> *promises) {
  const ScopedDirectory open_directory(opendir(directory.path().c_str()));
  if (!open_directory) return system_error("cannot read %s", directory.path().c_str());
  std::vector<Promise> found;
  while (const dirent *entry = readdir(open_directory.get())) {
    if (!is_job_id(entry->d_name)) continue;
    Promise promise;
    if (Error error = read_promise(directory, entry->d_name, region::Trust::root, &promise)) {
      if (error.fault == Fault::not_found) continue;
      return error;
    }
    found.push_back(std::move(promise));
  }
  *promises = std::move(found);
  return {};
}

}  // namespace vgpu::node
