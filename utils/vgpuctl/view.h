// What is on this node: every region that can be seen from here, read once and in a form that can be shown.
//
// Nothing is mapped and nobody waits: see Snapshot. What is not known is empty, never 0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/sm_time.h"
#include "options.h"
#include "region/region.h"

namespace vgpu::ctl {

enum class State : std::uint8_t {
  ok,
  at_limit,  // less than a twentieth of the limit is left
  idle,      // nobody has used it yet, or all left in good order
  stale,     // all whom it counts are dead
  hidden,    // of another user: only its limits can be seen
  damaged,   // its user spoiled the file in which its processes count
};

const char *name_of(State state);

struct DeviceView {
  unsigned place = 0;  // in the region
  std::string gpu;     // Slurm's number of it; where nobody knows that, its place in the region
  std::string uuid;
  std::string pci;
  int numa_node = -1;
  std::string cpus;
  std::uint64_t device_bytes = 0;
  std::uint64_t usable_bytes = 0;  // without what the driver keeps for itself; 0: not known
  region::ContextFigure context;   // what is reserved for a context, as root measured it or the site said
  std::uint64_t limit = 0;
  std::uint32_t sm_percent = 100;
  State state = State::hidden;

  std::optional<std::uint64_t> used;  // by those who live
  std::optional<std::uint64_t> peak;
  std::optional<std::uint64_t> refused;
  std::optional<unsigned> processes;          // that live, and hold memory here
  std::optional<std::uint64_t> launches;      // known where launches are hooked
  std::optional<double> throttled_s;          // known where launches are hooked
  std::optional<node::SmReading> sm_reading;  // known where launches are held to a share
  std::optional<double> sm_used;              // of 1; see sm_use.h
  bool ranks_add_up = false;

  double memory_ratio() const { return static_cast<double>(*used) / static_cast<double>(limit); }
};

struct RegionView {
  std::string job;  // the job id; of a vgpu-run, PID-START
  std::string path;
  bool is_private = false;  // made by a user with vgpu-run
  uid_t uid = 0;
  std::string user;
  bool launch_hooks = false;
  std::uint64_t created = 0;
  State state = State::hidden;
  Error damage;  // why its use is not known although it might be; its limits hold all the same
  std::vector<DeviceView> devices;
  std::unique_ptr<region::Snapshot> snapshot;  // null: only the limits could be read, or it was not kept
};

struct Trouble {
  std::string job;
  Error error;
};

struct NodeView {
  std::string host;
  std::vector<RegionView> regions;  // by job
  std::vector<Trouble> troubles;    // regions whose limits cannot be read: something is wrong on the node
};

enum class Ranks : std::uint8_t {
  keep,
  drop,  // snapshots are null: of hundreds of jobs they are megabytes
};

// Only the regions, devices and users that were asked for.
NodeView look(const Options &options, region::Detail detail, Ranks ranks = Ranks::keep);

// The one of options.job. `trouble` may be Fault::not_found.
Error look_at_job(const Options &options, region::Detail detail, RegionView *region);

// To stderr; the exit status they call for.
int complain(const Error &error);
// Damage that a job's user did is said, and is no failure of ours.
int complain_about(const NodeView &view);

std::string user_name(uid_t uid);
bool is_ended(const region::RankSnapshot &rank);

}  // namespace vgpu::ctl
