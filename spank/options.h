// --gpu-mem and --gpu-sm: one table, from which they are registered, read and checked wherever Slurm hands them over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "node/site_config.h"
#include "node/values.h"
#include "slurm.h"

namespace vgpu::spank {

// What a user asked for, as it was typed. Absent: not asked for.
struct RawOptions {
  std::optional<std::string> mem;
  std::optional<std::string> sm;

  bool any() const { return mem || sm; }
  // "--gpu-mem=8G --gpu-sm=50", or "no options"; for the log.
  std::string text() const;
  bool operator==(const RawOptions &) const = default;
};

// The same, parsed.
struct Request {
  bool opt_out = false;    // --gpu-mem=none
  node::MemoryLimits mem;  // empty: not asked for
  std::optional<std::uint32_t> sm;
};

// Everywhere, also where the client has done so before: a forged environment skips that.
Error parse_request(const RawOptions &options, Request *request);
// What can be refused without knowing a GPU.
Error check_against_site(const Request &request, const node::SiteConfig &config, uid_t uid);

// From slurm_spank_init() only. `on_value` gets each option that Slurm finds, in the client and in the step daemon.
using OnValue = int (*)(int option, const char *value, int remote);
bool register_options(spank_t handle, OnValue on_value);
// For OnValue: sets option number `option`.
void set_option(int option, const char *value, RawOptions *options);

// In the contexts that allow spank_option_getopt().
RawOptions given_options(spank_t handle);
// In sbatch and salloc: what an enclosing job left in the environment is not the new job's.
void unset_enclosing_job();
// In srun, sbatch and salloc, after the options were parsed: what will be sent, be it from the command line, from an
// enclosing job or forged. VGPU_MEM and VGPU_SM count when nothing else was given, and are sent from then on.
RawOptions options_to_send(spank_t handle);

}  // namespace vgpu::spank
