#include "admission.h"

#include <cstring>

#include "values.h"

namespace vgpu::node {

namespace {

constexpr std::size_t kNamedHolders = 4;  // the sentence has an end

struct Holder {
  std::string job;
  std::uint32_t uid;
  std::uint64_t bytes;
};

std::string name_holders(const std::vector<Holder> &holders) {
  std::string text;
  for (std::size_t i = 0; i < holders.size() && i < kNamedHolders; ++i) {
    text += (i == 0 ? "job " : ", job ") + holders[i].job + " (uid " + std::to_string(holders[i].uid) +
            "): " + format_bytes(holders[i].bytes);
  }
  if (holders.size() > kNamedHolders) text += " and " + std::to_string(holders.size() - kNamedHolders) + " more";
  return text;
}

}  // namespace

std::uint64_t usable_memory(const region::DeviceSpec &device) {
  return device.usable_bytes != 0 ? device.usable_bytes : device.identity.memory_bytes;
}

Error admit_beside(const std::vector<RegionLimits> &others, std::uint64_t overcommit_percent, const std::string &job,
                   const std::vector<region::DeviceSpec> &devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const region::DeviceSpec &wanted = devices[i];
    // 128 bits: a percentage of the largest device does not fit into 64.
    const auto room = static_cast<unsigned __int128>(usable_memory(wanted)) * overcommit_percent / 100;
    unsigned __int128 sum = wanted.memory_limit;
    std::vector<Holder> holders;
    for (const RegionLimits &other : others) {
      if (other.name == job) continue;
      for (const region::DeviceSpec &held : other.devices) {
        if (std::strcmp(held.identity.uuid, wanted.identity.uuid) != 0) continue;
        sum += held.memory_limit;
        holders.push_back({other.name, other.job.uid, held.memory_limit});
      }
    }
    if (sum <= room) continue;
    const auto held = static_cast<std::uint64_t>(sum - wanted.memory_limit);
    return make_error(Fault::invalid,
                      "GPU %s: %s do not fit beside the %s of its %s promised to %s; ask for less, or wait for them",
                      wanted.identity.uuid, format_bytes(wanted.memory_limit).c_str(), format_bytes(held).c_str(),
                      format_bytes(static_cast<std::uint64_t>(room)).c_str(), name_holders(holders).c_str());
  }
  return {};
}

Error admit(const RegionDirectory &directory, std::uint64_t overcommit_percent, const std::string &job,
            const std::vector<region::DeviceSpec> &devices, std::vector<Error> *unreadable) {
  std::vector<RegionLimits> others;
  if (Error error = list_region_limits(directory, &others, unreadable)) return error;
  return admit_beside(others, overcommit_percent, job, devices);
}

}  // namespace vgpu::node
