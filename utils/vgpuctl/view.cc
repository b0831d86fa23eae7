#include "view.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "node/directory.h"
#include "node/node.h"
#include "node/node_name.h"
#include "node/print_error.h"
#include "node/printable.h"
#include "node/private_region.h"
#include "node/region_limits.h"
#include "node/used_memory.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

constexpr double kAtLimit = 0.95;

template <std::size_t Size>
std::string text_of(const char (&field)[Size]) {
  return node::printable(std::string(field, strnlen(field, Size)));
}

struct Place {
  node::RegionDirectory directory;
  bool is_private;
};

std::vector<Place> places(const Options &options) {
  std::vector<Place> found = {{options.directory(), false}};
  const std::string runtime = node::runtime_directory(std::getenv("XDG_RUNTIME_DIR"));
  found.push_back({node::RegionDirectory(node::private_directory(runtime)), true});
  return found;
}

// By number where both are numbers.
bool comes_before(const std::string &left, const std::string &right) {
  const bool numbers = node::is_job_id(left) && node::is_job_id(right);
  if (numbers && left.size() != right.size()) return left.size() < right.size();
  return left < right;
}

std::vector<std::string> names_in(const Place &place) {
  std::vector<std::string> names;
  // In /tmp anybody could have made it, and filled it with names.
  if (place.is_private && !node::is_own_directory(place.directory.path())) return names;
  const node::ScopedDirectory directory(opendir(place.directory.path().c_str()));
  while (const dirent *entry = directory ? readdir(directory.get()) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    if (place.is_private ? node::is_region_name(entry->d_name) : node::is_job_id(entry->d_name)) {
      names.emplace_back(entry->d_name);
    }
  }
  std::sort(names.begin(), names.end(), comes_before);
  return names;
}

// What Slurm calls the GPUs.
std::map<std::string, std::string> gpu_numbers(const Options &options) {
  std::map<std::string, std::string> numbers;
  node::Node node;
  if (read_node(options.directory().node_file(), region::Trust::root_or_self, &node)) return numbers;
  for (const node::NodeDevice &device : node.devices) {
    if (device.gres_index >= 0) numbers[device.identity.uuid] = std::to_string(device.gres_index);
  }
  return numbers;
}

State state_of(const DeviceView &device, const region::Snapshot &region) {
  unsigned living = 0;
  for (unsigned i = 0; i < region.ranks(); ++i) living += !is_ended(region.rank(i));
  if (living == 0) return region.ranks() > 0 ? State::stale : State::idle;
  return device.memory_ratio() >= kAtLimit ? State::at_limit : State::ok;
}

unsigned processes_on(const region::Snapshot &region, unsigned dev) {
  unsigned count = 0;
  for (unsigned i = 0; i < region.ranks(); ++i) {
    if (is_ended(region.rank(i))) continue;
    bool holds = false;
    for (unsigned kind = 0; kind < region::kKinds; ++kind)
      holds |= region.memory(i, dev, static_cast<region::Kind>(kind)) != 0;
    count += holds;
  }
  return count;
}

void add_use(const region::Snapshot &region, unsigned dev, DeviceView *view) {
  const region::DeviceSnapshot &device = region.device(dev);
  view->used = node::used_memory(region, dev);
  view->peak = device.memory_peak;
  view->refused = device.refused;
  view->processes = processes_on(region, dev);
  view->ranks_add_up = device.ranks_add_up;
  view->sm_reading = node::read_sm(region, dev);
  if (region.job().launch_hooks != 0) {
    view->launches = device.launches;
    view->throttled_s = static_cast<double>(device.throttled_ns) / 1e9;
  }
  view->state = state_of(*view, region);
}

DeviceView describe_device(const region::DeviceSpec &spec, unsigned dev,
                           const std::map<std::string, std::string> &numbers) {
  DeviceView view;
  view.place = dev;
  view.uuid = text_of(spec.identity.uuid);
  const auto number = numbers.find(view.uuid);
  view.gpu = number != numbers.end() ? number->second : std::to_string(dev);
  view.pci = text_of(spec.identity.pci_bus_id);
  view.numa_node = spec.identity.numa_node;
  view.cpus = text_of(spec.identity.cpuset);
  view.device_bytes = spec.identity.memory_bytes;
  view.usable_bytes = spec.usable_bytes;
  view.context = spec.context;
  view.limit = std::max<std::uint64_t>(spec.memory_limit, 1);  // nothing is ever divided by zero
  view.sm_percent = spec.sm_percent;
  return view;
}

class Reader {
 public:
  Reader(const Options &options, region::Detail detail) : detail_(detail), numbers_(gpu_numbers(options)) {}

  Error read(const Place &place, const std::string &name, RegionView *region) {
    RegionView found;
    found.job = name;
    found.path = place.directory.job(name).path();
    found.is_private = place.is_private;
    found.snapshot = std::make_unique<region::Snapshot>();
    const Error error =
        region::Snapshot::read(found.path.c_str(), region::Trust::root_or_self, detail_, found.snapshot.get(), &self_);
    if (error) {
      // Their user can do what he likes to the file in which his processes count; the limits are root's.
      found.snapshot.reset();
      node::RegionLimits limits;
      if (Error worse = read_region_limits(place.directory, name, region::Trust::root_or_self, &limits)) return worse;
      describe(limits.job, limits.devices, &found);
      found.created = limits.created;
      if (geteuid() == 0 || limits.job.uid == geteuid()) note_damage(error, &found);
    } else {
      const region::Snapshot &snapshot = *found.snapshot;
      std::vector<region::DeviceSpec> devices;
      for (unsigned dev = 0; dev < snapshot.ndev(); ++dev) {
        const region::DeviceSnapshot &device = snapshot.device(dev);
        region::DeviceSpec spec;
        spec.identity = device.identity;
        spec.memory_limit = device.memory_limit;
        spec.sm_percent = device.sm_percent;
        spec.context = device.context;
        spec.usable_bytes = device.usable_bytes;
        devices.push_back(spec);
      }
      describe(snapshot.job(), devices, &found);
      found.created = snapshot.created();
      for (unsigned dev = 0; dev < snapshot.ndev(); ++dev) add_use(snapshot, dev, &found.devices[dev]);
      found.state = worst(found.devices);
    }
    *region = std::move(found);
    return {};
  }

 private:
  void describe(const region::JobIdentity &job, const std::vector<region::DeviceSpec> &devices, RegionView *region) {
    region->uid = job.uid;
    region->user = name_of(job.uid);
    region->launch_hooks = job.launch_hooks != 0;
    for (unsigned dev = 0; dev < devices.size(); ++dev) {
      region->devices.push_back(describe_device(devices[dev], dev, numbers_));
    }
  }

  static void note_damage(const Error &error, RegionView *region) {
    region->damage = make_error(error.fault, "job %s: %s; what it uses is not known, its limits hold",
                                region->job.c_str(), error.text);
    region->state = State::damaged;
    for (DeviceView &device : region->devices) device.state = State::damaged;
  }

  static State worst(const std::vector<DeviceView> &devices) {
    for (const State state : {State::stale, State::at_limit, State::idle}) {
      for (const DeviceView &device : devices) {
        if (device.state == state) return state;
      }
    }
    return State::ok;
  }

  // Every answer of the name service is asked for once.
  std::string name_of(uid_t uid) {
    std::string &name = users_[uid];
    if (name.empty()) name = user_name(uid);
    return name;
  }

  region::Detail detail_;
  region::SelfIdentity self_ = region::identify_self();
  std::map<std::string, std::string> numbers_;
  std::map<uid_t, std::string> users_;
};

bool is_wanted(const std::vector<std::string> &wanted, std::initializer_list<std::string> names) {
  if (wanted.empty()) return true;
  return std::any_of(names.begin(), names.end(), [&](const std::string &name) {
    return std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  });
}

// PID alone will do for a vgpu-run.
bool is_called(const Place &place, const std::string &name, const std::string &job) {
  return name == job || (place.is_private && name.rfind(job + "-", 0) == 0);
}

}  // namespace

const char *name_of(State state) {
  switch (state) {
    case State::ok:
      return "ok";
    case State::at_limit:
      return "at-limit";
    case State::idle:
      return "idle";
    case State::stale:
      return "stale";
    case State::damaged:
      return "damaged";
    case State::hidden:
      break;
  }
  return "hidden";
}

bool is_ended(const region::RankSnapshot &rank) { return rank.verdict != region::Verdict::alive; }

std::string user_name(uid_t uid) {
  const passwd *user = getpwuid(uid);
  return user != nullptr ? user->pw_name : std::to_string(uid);
}

NodeView look(const Options &options, region::Detail detail, Ranks ranks) {
  NodeView view;
  view.host = node::node_name();
  Reader reader(options, detail);
  for (const Place &place : places(options)) {
    for (const std::string &name : names_in(place)) {
      const bool is_asked_for =
          options.jobs.empty() || std::any_of(options.jobs.begin(), options.jobs.end(),
                                              [&](const std::string &job) { return is_called(place, name, job); });
      if (!is_asked_for) continue;
      RegionView region;
      if (const Error error = reader.read(place, name, &region)) {
        // Gone since we looked, or never a region: why there is none is for the job's own steps to say.
        if (error.fault != Fault::not_found) view.troubles.push_back({name, error});
        continue;
      }
      if (ranks == Ranks::drop) region.snapshot.reset();
      if (!is_wanted(options.users, {region.user, std::to_string(region.uid)})) continue;
      std::erase_if(region.devices, [&](const DeviceView &device) {
        return !is_wanted(options.gpus, {device.gpu, device.uuid, device.pci});
      });
      if (!region.devices.empty()) view.regions.push_back(std::move(region));
    }
  }
  return view;
}

Error look_at_job(const Options &options, region::Detail detail, RegionView *region) {
  Reader reader(options, detail);
  for (const Place &place : places(options)) {
    for (const std::string &name : names_in(place)) {
      if (!is_called(place, name, options.job)) continue;
      const Error error = reader.read(place, name, region);
      if (error.fault != Fault::not_found) return error;
    }
  }
  return make_error(Fault::not_found, "job %s has no region on this node", options.job.c_str());
}

int complain(const Error &error) {
  node::print_error("%s", error.text);
  switch (error.fault) {
    case Fault::not_found:
      return kNoJob;
    case Fault::foreign:
    case Fault::older:
    case Fault::newer:
    case Fault::truncated:
    case Fault::corrupt:
    case Fault::symlink:
    case Fault::wrong_owner:
    case Fault::writable:
      return kCorrupt;
    default:
      return kRefused;
  }
}

int complain_about(const NodeView &view) {
  int status = kOk;
  for (const Trouble &trouble : view.troubles) status = std::max(status, complain(trouble.error));
  for (const RegionView &region : view.regions) {
    if (region.damage) node::print_error("%s", region.damage.text);
  }
  return status;
}

}  // namespace vgpu::ctl
