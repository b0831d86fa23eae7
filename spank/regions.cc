#include "regions.h"

#include <dirent.h>
#include <fcntl.h>

#include <cerrno>
#include <memory>

#include "region/files.h"
#include "region/scoped.h"

namespace vgpu::spank {

namespace {

struct CloseDirectory {
  void operator()(DIR *directory) const { closedir(directory); }
};

// Everything else in the directory (the node file, the locks) is not a number.
bool is_job_id(const char *name) {
  if (*name == '\0') return false;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return false;
  }
  return true;
}

}  // namespace

Error read_promise(const Config &config, const std::string &name, Promise *promise) {
  const std::string directory = config.region_dir + "/" + name;
  RegionFiles files;
  if (Error error = open_limits(directory.c_str(), Trust::root, O_RDONLY, &files)) return error;
  const unsigned ndev = files.header.ndev;
  const ScopedMapping mapping(files.limits.get(), limits_size(ndev), PROT_READ);
  if (!mapping) return system_error("vgpu: cannot map %s/limits", directory.c_str());
  const auto &limits = *static_cast<const LimitsFile *>(mapping.get());
  Promise found = {name, files.job, {}};
  for (unsigned dev = 0; dev < ndev; ++dev) {
    const DeviceLimits &device = limits.devices[dev];
    found.devices.push_back({device.identity, device.memory_bytes.load(std::memory_order_acquire),
                             device.sm_percent.load(std::memory_order_acquire)});
  }
  *promise = std::move(found);
  return {};
}

Error list_promises(const Config &config, std::vector<Promise> *promises) {
  const std::unique_ptr<DIR, CloseDirectory> directory(opendir(config.region_dir.c_str()));
  if (!directory) return system_error("vgpu: cannot read %s", config.region_dir.c_str());
  std::vector<Promise> found;
  while (const dirent *entry = readdir(directory.get())) {
    if (!is_job_id(entry->d_name)) continue;
    Promise promise;
    if (Error error = read_promise(config, entry->d_name, &promise)) {
      if (error.fault == Fault::not_found) continue;
      return error;
    }
    found.push_back(std::move(promise));
  }
  *promises = std::move(found);
  return {};
}

}  // namespace vgpu::spank
