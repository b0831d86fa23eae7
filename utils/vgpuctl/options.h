// What the user typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/directory.h"
#include "node/probe.h"
#include "node/values.h"

namespace vgpu::ctl {

struct Options;
using Command = int (*)(const Options &options);

struct Options {
  Command command = nullptr;

  // where to look
  std::string region_dir;
  std::string nvml;
  std::string hwloc_xml;
  std::string record;
  std::string library;
  std::string plugin;     // empty: the one in plugstack.conf
  std::string plugstack;  // empty: Slurm's

  // which jobs
  std::string job;
  std::vector<std::string> jobs, users, gpus;

  // how to show them
  std::string columns;
  bool header = true;
  bool parsable = false;
  bool json = false;
  bool bytes = false;
  bool color = true;
  bool svg = false;
  double every_s = 0;  // 0: once

  // what to do
  std::string output;     // empty: standard output
  std::string job_files;  // a directory for dcgm-exporter
  bool ask_nvml = true;
  bool dry_run = false;
  bool measure = false;
  bool force = false;
  std::uint64_t grace_s = 0;
  std::optional<node::MemoryLimits> memory;
  std::optional<std::uint32_t> sm_percent;
  std::uint64_t pid = 0;

  node::RegionDirectory directory() const { return node::RegionDirectory(region_dir); }
  node::ProbeOptions probe() const;
};

// Nothing, and `status`, when there is nothing to do but to end with it.
std::optional<Options> parse_options(int argc, char **argv, int *status);

}  // namespace vgpu::ctl
