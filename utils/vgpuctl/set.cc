// vgpuctl set: new limits for a job that runs. When it returns, they hold.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "columns.h"
#include "commands.h"
#include "node/admission.h"
#include "node/history.h"
#include "node/plugstack.h"
#include "node/print_error.h"
#include "node/values.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

struct Change {
  std::size_t place;  // in the region
  region::LimitChange limits;
};

Error plan(const Options &options, const RegionView &region, std::vector<Change> *changes) {
  const auto ndev = static_cast<unsigned>(region.devices.size());
  const auto is_chosen = [&](const DeviceView &device) {
    const auto names = {device.gpu, device.uuid, device.pci};
    return options.gpus.empty() || std::find_first_of(options.gpus.begin(), options.gpus.end(), names.begin(),
                                                      names.end()) != options.gpus.end();
  };
  const auto chosen = static_cast<unsigned>(std::count_if(region.devices.begin(), region.devices.end(), is_chosen));
  if (chosen == 0) {
    return make_error(Fault::invalid, "job %s has no such GPU; see vgpuctl show %s", region.job.c_str(),
                      region.job.c_str());
  }
  if (options.memory) {
    if (Error error = options.memory->check_gpus("--gpu-mem", chosen)) return error;
  }
  unsigned index = 0;
  for (unsigned dev = 0; dev < ndev; ++dev) {
    const DeviceView &device = region.devices[dev];
    if (!is_chosen(device)) continue;
    Change change = {dev, {}};
    change.limits.dev = dev;
    const std::uint64_t room = device.usable_bytes != 0 ? device.usable_bytes : device.device_bytes;
    if (options.memory) {
      if (Error error = options.memory->resolve("--gpu-mem", index, room, &change.limits.memory_limit)) {
        return error;
      }
      if (change.limits.memory_limit <= device.device_bytes) {
        change.limits.memory_limit = std::min(change.limits.memory_limit, room);
      }
      if (room != 0 && change.limits.memory_limit > room) {
        return make_error(Fault::invalid, "--gpu-mem=%s: GPU %s has no more than %s",
                          node::format_bytes(change.limits.memory_limit).c_str(), device.gpu.c_str(),
                          node::format_bytes(room).c_str());
      }
    }
    if (options.sm_percent) change.limits.sm_percent = *options.sm_percent;
    changes->push_back(change);
    ++index;
  }
  return {};
}

// Only what grows has to fit beside the others.
Error check_room(const Options &options, const RegionView &region, const std::vector<Change> &changes) {
  if (options.force || region.is_private) return {};
  std::vector<region::DeviceSpec> larger;
  for (const Change &change : changes) {
    const DeviceView &device = region.devices[change.place];
    if (change.limits.memory_limit == region::LimitChange::kKeepMemory || change.limits.memory_limit <= device.limit)
      continue;
    if (device.device_bytes == 0) continue;
    region::DeviceSpec spec;
    std::snprintf(spec.identity.uuid, sizeof spec.identity.uuid, "%s", device.uuid.c_str());
    spec.identity.memory_bytes = device.device_bytes;
    spec.usable_bytes = device.usable_bytes;
    spec.memory_limit = change.limits.memory_limit;
    larger.push_back(spec);
  }
  if (larger.empty()) return {};
  node::Plugstack site;  // where it says nothing, nobody overcommits
  Error unknown = node::read_plugstack(options.plugstack, &site);
  if (!unknown) unknown = site.bad_keys;
  std::vector<Error> unreadable;
  const Error error = node::admit(options.directory(), site.config.overcommit_percent, region.job, larger, &unreadable);
  for (const Error &trouble : unreadable) node::print_error("%s; its limits are not counted", trouble.text);
  if (error.fault == Fault::invalid) {
    if (unknown) {
      node::print_error("%s", unknown.text);
      node::print_error("so it is not known whether the site overcommits");
    }
    node::print_error("--force sets it all the same");
  }
  return error;
}

Error change_all(const RegionView &region, const std::vector<Change> &changes) {
  for (const Change &change : changes) {
    // What the job's user did to his own file vetoes nothing.
    Error damage;
    const Error error = change_limits(region.path.c_str(), region::Trust::root_or_self, change.limits, &damage);
    if (damage) node::print_error("%s", damage.text);
    const bool not_hooked = change.limits.sm_percent != region::LimitChange::kKeepSm && !region.launch_hooks;
    if (error.fault == Fault::invalid && not_hooked) {
      return make_error(error.fault, "%s; start it with --gpu-sm, or set sm=live in plugstack.conf for all jobs",
                        error.text);
    }
    if (error) return error;
  }
  return {};
}

// For the report. The limits are set, whatever becomes of this.
void note(const RegionView &before, const RegionView &after) {
  if (before.is_private || !before.snapshot || !after.snapshot) return;
  if (const Error error = node::note_change(after.path, *before.snapshot, *after.snapshot)) {
    node::print_error("%s; the job's report will not know of the change", error.text);
  }
}

// `region`: as it is then.
Error set_limits(const Options &options, RegionView *region) {
  if (!options.memory && !options.sm_percent) {
    return make_error(Fault::invalid, "vgpuctl set: no new limit is given; give --gpu-mem=SIZE or --gpu-sm=PERCENT");
  }
  // Whoever raises a limit takes part in admission; a user's own region is nobody else's business.
  RegionView before;
  if (Error error = look_at_job(options, region::Detail::tokens, &before)) return error;
  node::DirectoryLock lock;
  if (!before.is_private) {
    if (geteuid() != 0) {
      return make_error(Fault::invalid, "only root can change the limits of job %s", before.job.c_str());
    }
    if (Error error = options.directory().lock_admission(&lock)) return error;
    // Somebody may have changed them while we waited.
    if (Error error = look_at_job(options, region::Detail::tokens, &before)) return error;
  }
  std::vector<Change> changes;
  if (Error error = plan(options, before, &changes)) return error;
  if (Error error = check_room(options, before, changes)) return error;
  // Some may be set when others could not be: what was done is noted.
  const Error error = change_all(before, changes);
  if (Error gone = look_at_job(options, region::Detail::tokens, region)) return error ? error : gone;
  note(before, *region);
  return error;
}

}  // namespace

int set(const Options &options) {
  RegionView region;
  if (const Error error = set_limits(options, &region)) return complain(error);
  for (const DeviceView &device : region.devices) {
    std::string line = "job " + region.job + ", GPU " + device.gpu + ": " + node::format_bytes(device.limit) +
                       " of memory, " + std::to_string(device.sm_percent) + "% of the SMs\n";
    if (!print(line)) return kRefused;
    if (device.used && *device.used > device.limit) {
      node::print_error("job %s uses %s of GPU %s now: it keeps them, and gets nothing more until it has freed enough",
                        region.job.c_str(), node::format_bytes(*device.used).c_str(), device.gpu.c_str());
    }
  }
  return kOk;
}

}  // namespace vgpu::ctl
