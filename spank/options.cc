#include "options.h"

#include <cstdlib>
#include <iterator>

namespace vgpu::spank {

namespace {

constexpr char kMemoryOption[] = "--gpu-mem";
constexpr char kSmOption[] = "--gpu-sm";
constexpr char kOptOutWord[] = "none";

struct Option {
  const char *name;
  const char *argument;
  const char *usage;
  std::optional<std::string> RawOptions::*field;
  const char *variable;  // the environment form
  const char *sent_as;   // Slurm's own name of the value on its way to the job
};

constexpr Option kOptions[] = {
    {"gpu-mem", "SIZE",
     "device memory that all tasks of the job together may use on each GPU of a node: 8G, 512M, 1.5G, 50% of the GPU, "
     "or a list with one value for each GPU (4G,8G); `none' asks for no limit, if the site allows that. Environment: "
     "VGPU_MEM. (For host memory use --mem-per-gpu.)",
     &RawOptions::mem, "VGPU_MEM", "_SLURM_SPANK_OPTION_vgpu_gpu_mem"},
    {"gpu-sm", "PERCENT",
     "share of the SM time of each GPU that all tasks of the job together may use: 1 to 100. Environment: VGPU_SM.",
     &RawOptions::sm, "VGPU_SM", "_SLURM_SPANK_OPTION_vgpu_gpu_sm"},
};

// How the steps of a job find what was given to the job.
std::string inherited_as(const Option &option) { return std::string("SLURM_SPANK_") + option.sent_as; }

// Slurm's structure wants to be able to write to the texts; it never does.
spank_option as_spank_option(const Option &option, OnValue on_value) {
  return {const_cast<char *>(option.name),      const_cast<char *>(option.argument),
          const_cast<char *>(option.usage),     1,
          static_cast<int>(&option - kOptions), on_value};
}

}  // namespace

std::string RawOptions::text() const {
  std::string text;
  for (const Option &option : kOptions) {
    const std::optional<std::string> &value = this->*option.field;
    if (value) text += (text.empty() ? "--" : " --") + std::string(option.name) + "=" + *value;
  }
  return text.empty() ? "no options" : text;
}

Error parse_request(const RawOptions &options, Request *request) {
  Request parsed;
  if (options.mem && *options.mem == kOptOutWord) {
    parsed.opt_out = true;
  } else if (options.mem) {
    if (Error error = parse_memory_list(kMemoryOption, *options.mem, &parsed.mem)) return error;
  }
  if (options.sm) {
    std::uint32_t percent = 0;
    if (Error error = node::parse_sm(kSmOption, *options.sm, &percent)) return error;
    parsed.sm = percent;
  }
  *request = std::move(parsed);
  return {};
}

Error check_against_site(const Request &request, const node::SiteConfig &config, uid_t uid) {
  if (request.opt_out) {
    if (request.sm) {
      return make_error(Fault::invalid, "--gpu-mem=none: it cannot be combined with --gpu-sm; drop one of them");
    }
    if (!config.opt_out.includes(uid)) {
      return make_error(Fault::invalid, "--gpu-mem=none: this site does not let uid %u opt out; give a size", uid);
    }
  }
  if (config.max_mem && !config.max_mem->is_share()) {
    for (const node::MemoryLimit &limit : request.mem.values()) {
      if (limit.is_share() || limit.bytes <= config.max_mem->bytes) continue;
      return make_error(Fault::invalid, "--gpu-mem: %s is more than the %s that this site allows; ask for less",
                        format_memory(limit).c_str(), format_memory(*config.max_mem).c_str());
    }
  }
  if (request.sm && *request.sm > config.max_sm) {
    return make_error(Fault::invalid, "--gpu-sm: %u is more than the %u percent that this site allows; ask for less",
                      *request.sm, config.max_sm);
  }
  return {};
}

bool register_options(spank_t handle, OnValue on_value) {
  // Slurm keeps a copy of the structure, but not of its texts: those are constants.
  for (const Option &option : kOptions) {
    spank_option spank = as_spank_option(option, on_value);
    if (spank_option_register(handle, &spank) != ESPANK_SUCCESS) return false;
  }
  return true;
}

void set_option(int option, const char *value, RawOptions *options) {
  if (option < 0 || option >= static_cast<int>(std::size(kOptions))) return;
  options->*kOptions[option].field = value == nullptr ? "" : value;
}

RawOptions given_options(spank_t handle) {
  RawOptions options;
  for (const Option &option : kOptions) {
    spank_option spank = as_spank_option(option, nullptr);
    char *value = nullptr;
    if (spank_option_getopt(handle, &spank, &value) != ESPANK_SUCCESS) continue;
    options.*option.field = value == nullptr ? "" : value;
  }
  return options;
}

void unset_enclosing_job() {
  for (const Option &option : kOptions) unsetenv(inherited_as(option).c_str());
  for (const char *variable : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_SHARDS_ON_NODE"}) unsetenv(variable);
}

RawOptions options_to_send(spank_t handle) {
  RawOptions options;
  for (const Option &option : kOptions) {
    if (const char *value = std::getenv(option.sent_as); value != nullptr) {
      options.*option.field = value;
    } else if (value = std::getenv(option.variable); value != nullptr) {
      options.*option.field = value;
      setenv(option.sent_as, value, 1);
      spank_job_control_setenv(handle, option.sent_as, value, 1);
    }
  }
  return options;
}

}  // namespace vgpu::spank
