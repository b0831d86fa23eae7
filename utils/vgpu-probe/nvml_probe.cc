#include "nvml_probe.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>

#include "nvml_library.h"

namespace vgpu::probe {

namespace {

constexpr char kCapabilities[] = "/proc/driver/nvidia/capabilities";

// Reads one GPU. The first call that fails stops it: `result_` says why.
class Reader {
 public:
  explicit Reader(const nvml::Calls &calls) : calls_(calls) {}

  nvml::Result result() const { return result_; }

  // What `index` is: the GPU itself, or its MIG instances when MIG is on.
  bool read(unsigned index, std::vector<node::NodeDevice> *devices) {
    node::NodeDevice gpu;
    nvml::Device handle = nullptr;
    if (!ok(calls_.device_by_index(index, &handle)) || !read_gpu(handle, &gpu)) return false;
    if (!mig_is_on(handle)) {
      if (!read_memory(handle, &gpu)) return false;
      node::assign(gpu.identity.uuid, gpu.gpu_uuid);
      devices->push_back(std::move(gpu));
      return true;
    }
    unsigned instances = 0;
    if (!ok(calls_.max_mig_devices(handle, &instances))) return false;
    for (unsigned instance = 0; instance < instances; ++instance) {
      nvml::Device mig = nullptr;
      const nvml::Result found = calls_.mig_device_by_index(handle, instance, &mig);
      if (found == nvml::kNotFound) continue;  // there may be fewer than the most
      node::NodeDevice device = gpu;
      if (!ok(found) || !read_instance(mig, &device)) return false;
      devices->push_back(std::move(device));
    }
    return true;
  }

 private:
  bool ok(nvml::Result result) {
    result_ = result;
    return result == nvml::kSuccess;
  }

  bool read_uuid(nvml::Device handle, std::string *uuid) {
    char text[nvml::kUuidSize] = "";
    if (!ok(calls_.uuid(handle, text, sizeof text))) return false;
    text[sizeof text - 1] = '\0';
    *uuid = text;
    return true;
  }

  bool read_memory(nvml::Device handle, node::NodeDevice *device) {
    nvml::Memory memory = {};
    if (!ok(calls_.memory_info(handle, &memory))) return false;
    device->identity.memory_bytes = memory.total;
    nvml::Memory2 more = {nvml::kMemory2, 0, 0, 0, 0};
    // The two versions need not agree on the total.
    if (calls_.memory_info_2 != nullptr && calls_.memory_info_2(handle, &more) == nvml::kSuccess &&
        more.reserved < more.total) {
      device->usable_bytes = std::min(memory.total, more.total - more.reserved);
    }
    return true;
  }

  bool read_gpu(nvml::Device handle, node::NodeDevice *gpu) {
    unsigned minor = 0;
    nvml::PciInfo pci = {};
    if (!read_uuid(handle, &gpu->gpu_uuid) || !ok(calls_.minor_number(handle, &minor)) ||
        !ok(calls_.pci_info(handle, &pci))) {
      return false;
    }
    gpu->minor = static_cast<int>(minor);
    gpu->device_file = "/dev/nvidia" + std::to_string(minor);
    gpu->identity.numa_node = -1;
    // A GPU's compute function is always the first of its PCI device.
    std::snprintf(gpu->identity.pci_bus_id, sizeof gpu->identity.pci_bus_id, "%04x:%02x:%02x.0", pci.domain,
                  pci.bus & 0xffu, pci.device & 0xffu);
    return true;
  }

  bool mig_is_on(nvml::Device handle) const {
    unsigned current = 0, pending = 0;
    return calls_.knows_mig() && calls_.mig_mode(handle, &current, &pending) == nvml::kSuccess && current == 1;
  }

  bool read_instance(nvml::Device mig, node::NodeDevice *device) {
    std::string uuid;
    unsigned gpu_instance = 0, compute_instance = 0;
    if (!read_uuid(mig, &uuid) || !ok(calls_.gpu_instance_id(mig, &gpu_instance)) ||
        !ok(calls_.compute_instance_id(mig, &compute_instance)) || !read_memory(mig, device)) {
      return false;
    }
    device->device_file = mig_device_file(kCapabilities, device->minor, gpu_instance, compute_instance);
    return node::assign(device->identity.uuid, uuid);
  }

  const nvml::Calls &calls_;
  nvml::Result result_ = nvml::kSuccess;
};

Error read_devices(const nvml::Calls &calls, node::Node *node) {
  unsigned count = 0;
  if (const nvml::Result result = calls.device_count(&count); result != nvml::kSuccess) {
    return make_error(Fault::system, "NVML does not count the GPUs: %s; see what nvidia-smi says on this node",
                      calls.error_string(result));
  }
  for (unsigned index = 0; index < count; ++index) {
    Reader reader(calls);
    std::vector<node::NodeDevice> found;
    if (reader.read(index, &found)) {
      node->devices.insert(node->devices.end(), found.begin(), found.end());
    } else {
      node->problems.push_back("NVML cannot tell about GPU " + std::to_string(index) + ": " +
                               calls.error_string(reader.result()));
    }
  }
  if (node->devices.size() > region::kMaxDevices) {
    return make_error(Fault::invalid, "this node has %zu GPUs and MIG instances, but a region has room for %u",
                      node->devices.size(), region::kMaxDevices);
  }
  return {};
}

// By process; whoever is not in there was idle. Nothing: NVML does not know.
std::optional<std::map<int, int>> read_utilization(const nvml::Calls &calls, nvml::Device device) {
  constexpr unsigned long long kSince_us = 2'000'000;
  if (calls.utilization == nullptr) return {};
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const auto now_us =
      static_cast<unsigned long long>(now.tv_sec) * 1'000'000 + static_cast<unsigned long long>(now.tv_nsec) / 1000;
  std::vector<nvml::Utilization> samples(4096);
  auto count = static_cast<unsigned>(samples.size());
  const nvml::Result result = calls.utilization(device, samples.data(), &count, now_us - kSince_us);
  if (result != nvml::kSuccess && result != nvml::kNotFound) return {};
  std::map<int, int> shares;
  std::map<int, unsigned long long> newest;
  for (unsigned i = 0; result == nvml::kSuccess && i < count && i < samples.size(); ++i) {
    const auto pid = static_cast<int>(samples[i].pid);
    if (samples[i].time_us < newest[pid]) continue;
    newest[pid] = samples[i].time_us;
    shares[pid] = static_cast<int>(std::min(samples[i].sm_percent, 100u));
  }
  return shares;
}

// What is in use without the driver's reserve, which some drivers count as used in the second version as well, all in the first.
std::optional<std::uint64_t> read_in_use(const nvml::Calls &calls, nvml::Device device) {
  nvml::Memory memory = {};
  if (calls.memory_info(device, &memory) != nvml::kSuccess) return {};
  nvml::Memory2 more = {nvml::kMemory2, 0, 0, 0, 0};
  if (calls.memory_info_2 == nullptr || calls.memory_info_2(device, &more) != nvml::kSuccess) return memory.used;
  return more.used < memory.used ? more.used : more.used - std::min(more.used, more.reserved);
}

void read_processes(const nvml::Calls &calls, const std::string &uuid, std::vector<node::GpuProcess> *processes,
                    node::MemoryInUse *in_use) {
  nvml::Device device = nullptr;
  if (calls.device_by_uuid(uuid.c_str(), &device) != nvml::kSuccess) return;
  const auto before = read_in_use(calls, device);
  std::vector<nvml::Process> found;
  if (!list_processes(calls.compute_processes, device, &found)) return;
  // Of what comes or goes meanwhile the list may show some. Less in use is in favour of those in the list.
  const auto after = read_in_use(calls, device);
  if (before && after) in_use->emplace(uuid, std::min(*before, *after));
  const auto shares = !found.empty() ? read_utilization(calls, device) : std::nullopt;
  for (const nvml::Process &process : found) {
    const unsigned long long bytes = process.used_memory;
    const auto pid = static_cast<int>(process.pid);
    const int share = !shares ? -1 : shares->contains(pid) ? shares->at(pid) : 0;
    processes->push_back({uuid, pid, bytes == nvml::kNoValue ? 0 : bytes, share});
  }
}

}  // namespace

std::string mig_device_file(const std::string &capabilities, int gpu_minor, unsigned gpu_instance,
                            unsigned compute_instance) {
  std::ifstream access(capabilities + "/gpu" + std::to_string(gpu_minor) + "/mig/gi" + std::to_string(gpu_instance) +
                       "/ci" + std::to_string(compute_instance) + "/access");
  std::string key;
  unsigned minor = 0;
  if (!(access >> key >> minor) || key != "DeviceFileMinor:") return "";
  return "/dev/nvidia-caps/nvidia-cap" + std::to_string(minor);
}

Error probe_nvml(const std::string &library, node::Node *node) {
  nvml::Calls calls = {};
  if (Error error = start_nvml(library, &calls)) return error;
  node->driver = driver_version(calls);
  return read_devices(calls, node);
}

Error ProcessLister::open(const std::string &library) {
  if (Error error = start_nvml(library, &calls_)) return error;
  if (calls_.compute_processes == nullptr || calls_.device_by_uuid == nullptr) {
    return make_error(Fault::foreign, "%s cannot list processes; update the driver", library.c_str());
  }
  return {};
}

Error ProcessLister::list(std::string *text) {
  // MIG instances come and go.
  constexpr unsigned kListsPerLook = 100;
  if (lists_++ % kListsPerLook == 0) {
    node::Node node;
    if (Error error = read_devices(calls_, &node)) return error;
    uuids_.clear();
    for (const node::NodeDevice &device : node.devices) uuids_.emplace_back(device.identity.uuid);
  }
  std::vector<node::GpuProcess> processes;
  node::MemoryInUse in_use;
  for (const std::string &uuid : uuids_) read_processes(calls_, uuid, &processes, &in_use);
  *text = format_processes(processes, in_use);
  return {};
}

}  // namespace vgpu::probe
