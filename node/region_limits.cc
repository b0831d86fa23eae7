#include "region_limits.h"

#include <fcntl.h>

#include "base/scoped.h"
#include "directory.h"
#include "region/files.h"

namespace vgpu::node {

Error read_promise(const std::string &region_dir, const std::string &name, region::Trust trust, Promise *promise) {
  const std::string directory = region_dir + "/" + name;
  region::RegionFiles files;
  if (Error error = open_limits(directory.c_str(), trust, O_RDONLY, &files)) return error;
  const unsigned ndev = files.header.ndev;
  const ScopedMapping mapping(files.limits.get(), region::limits_size(ndev), PROT_READ);
  if (!mapping) return system_error("cannot map %s/limits", directory.c_str());
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

Error list_promises(const std::string &region_dir, std::vector<Promise> *promises) {
  const ScopedDirectory directory(opendir(region_dir.c_str()));
  if (!directory) return system_error("cannot read %s", region_dir.c_str());
  std::vector<Promise> found;
  while (const dirent *entry = readdir(directory.get())) {
    if (!is_job_id(entry->d_name)) continue;
    Promise promise;
    if (Error error = read_promise(region_dir, entry->d_name, region::Trust::root, &promise)) {
      if (error.fault == Fault::not_found) continue;
      return error;
    }
    found.push_back(std::move(promise));
  }
  *promises = std::move(found);
  return {};
}

}  // namespace vgpu::node
