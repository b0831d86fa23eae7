// What the site says in plugstack.conf, behind the name of the plugin: key=value, each documented in spank_vgpu(8).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "directory.h"
#include "node.h"
#include "values.h"

namespace vgpu::node {

enum class LogLevel : std::uint8_t { error, info, debug };
// Who holds a job to its SM limit.
enum class SmBy : std::uint8_t {
  automatic,  // MPS where the site runs it, otherwise as with `option`
  option,     // the library, in jobs that start with a limit
  live,       // the library, in every job: its launches are hooked, so that a limit can be set while it runs
  mps,        // the site's MPS servers, which the job's processes tell their share; launches are not hooked
};

enum class PreloadBy : std::uint8_t { env, ldso };
enum class Audit : std::uint8_t { off, log, notify, kill };
enum class Summary : std::uint8_t { never, used, always };

// Some of the cluster's users: everybody, nobody, or those named.
struct Audience {
  bool everybody = false;
  std::vector<std::string> users;
  std::vector<std::string> groups;

  bool includes(uid_t uid) const;
};

// What a context takes, where the site knows better than a measurement.
struct SiteContexts {
  std::uint64_t everywhere = 0;  // 0: not said
  std::map<std::string, std::uint64_t> by_uuid;

  void add_to(std::vector<NodeDevice> *devices) const;
};

struct SiteConfig {
  std::string region_dir = region::kRegionDirectory;
  std::uint64_t region_size = std::uint64_t{64} << 20;  // of the tmpfs mounted there; 0: none is mounted
  std::string library;
  std::string nvml;
  std::string hwloc_xml;
  std::string probe;      // the vgpu-probe to run; empty: the installed one
  std::string watch;      // the vgpu-watch that slurmd starts; empty: none
  std::string gres_conf;  // empty: beside slurm.conf
  std::string record;     // of ended jobs; empty: none is kept
  std::string state;      // what contexts take; empty: nothing is measured or kept

  std::optional<MemoryLimit> default_mem;
  std::optional<MemoryLimit> max_mem;
  std::optional<std::uint32_t> default_sm;
  std::uint32_t max_sm = 100;
  std::uint64_t shard_mem = 0;             // 0: shards say nothing about memory
  std::uint64_t overcommit_percent = 100;  // of a device's memory, for the sum of the jobs on it
  bool require_limits = false;
  SmBy sm = SmBy::automatic;
  bool fail_open = false;
  Audience opt_out;
  SiteContexts context;

  PreloadBy preload = PreloadBy::env;
  Audit audit = Audit::off;
  Summary summary = Summary::used;
  LogLevel log = LogLevel::info;

  SiteConfig();

  // Stops at the first thing it does not understand.
  static Error parse(int argc, char **argv, SiteConfig *config);

  RegionDirectory directory() const { return RegionDirectory(region_dir); }
};

}  // namespace vgpu::node
