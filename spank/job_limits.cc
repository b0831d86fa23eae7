#include "job_limits.h"

#include <algorithm>

#include "node/admission.h"

namespace vgpu::spank {

namespace {

constexpr char kOption[] = "--gpu-mem";

std::uint64_t share_of(const node::MemoryLimit &limit, std::uint64_t device_bytes, Error *error) {
  std::uint64_t bytes = 0;
  *error = node::MemoryLimits({limit}).resolve("plugstack.conf", 0, device_bytes, &bytes);
  return bytes;
}

// What the job's shards stand for on each of its GPUs; 0: it has none, or they stand for nothing.
std::uint64_t memory_of_shards(const node::SiteConfig &config, unsigned shards, std::size_t gpus,
                               std::uint64_t device_bytes) {
  if (shards == 0 || config.shard_mem == 0) return 0;
  const std::uint64_t share = (std::uint64_t{shards} + gpus - 1) / gpus;
  return share > device_bytes / config.shard_mem ? device_bytes : share * config.shard_mem;
}

// What the site gives to those who do not ask; 0: nothing.
Error unasked_memory(const node::SiteConfig &config, unsigned shards, std::size_t gpus, std::uint64_t device_bytes,
                     std::uint64_t *bytes) {
  Error error;
  *bytes = memory_of_shards(config, shards, gpus, device_bytes);
  if (*bytes == 0 && config.default_mem) *bytes = share_of(*config.default_mem, device_bytes, &error);
  return error;
}

Error decide_memory(const node::SiteConfig &config, const Request &request, unsigned shards,
                    const node::NodeDevice &device, unsigned index, std::size_t gpus, std::uint64_t *limit) {
  // What nobody can have is not promised: two jobs with half of a GPU must both be able to fill theirs.
  const std::uint64_t device_bytes = device.usable_bytes != 0 ? device.usable_bytes : device.identity.memory_bytes;
  std::uint64_t most = device_bytes;
  if (config.max_mem) {
    Error error;
    most = std::min(most, share_of(*config.max_mem, device_bytes, &error));
    if (error) return error;
  }
  if (request.mem.empty()) {
    std::uint64_t bytes = 0;
    if (Error error = unasked_memory(config, shards, gpus, device_bytes, &bytes)) return error;
    *limit = bytes == 0 ? most : std::min(bytes, most);
    return {};
  }
  std::uint64_t bytes = 0;
  if (Error error = request.mem.resolve(kOption, index, device_bytes, &bytes)) return error;
  // Who asks for all that is written on the GPU wants the whole of it.
  if (bytes <= device.identity.memory_bytes) bytes = std::min(bytes, device_bytes);
  if (bytes > device_bytes) {
    return make_error(Fault::invalid, "--gpu-mem: %s is more than GPU %d of this node has, %s; ask for less",
                      node::format_bytes(bytes).c_str(), device.gres_index, node::format_bytes(device_bytes).c_str());
  }
  if (bytes > most) {
    return make_error(Fault::invalid, "--gpu-mem: %s is more than the %s that this site allows; ask for less",
                      node::format_bytes(bytes).c_str(), node::format_bytes(most).c_str());
  }
  // Slurm packed the job by its shards: the rest of the GPU is others'.
  const std::uint64_t shared = memory_of_shards(config, shards, gpus, device_bytes);
  if (shared != 0 && bytes > shared) {
    return make_error(Fault::invalid,
                      "--gpu-mem: %s is more than the %s that %u shard%s stand%s for; ask for more shards, or for "
                      "--gpu-mem, when you submit the job",
                      node::format_bytes(bytes).c_str(), node::format_bytes(shared).c_str(), shards,
                      shards == 1 ? "" : "s", shards == 1 ? "s" : "");
  }
  *limit = bytes;
  return {};
}

}  // namespace

bool wants_limits(const node::SiteConfig &config, const Request &request, unsigned shards) {
  return !request.mem.empty() || request.sm || config.default_mem || config.default_sm ||
         (config.shard_mem > 0 && shards > 0);
}

Error decide_limits(const node::SiteConfig &config, const Request &request, unsigned shards,
                    const std::vector<node::NodeDevice> &devices, std::vector<region::DeviceSpec> *limits) {
  const auto gpus = static_cast<unsigned>(devices.size());
  if (!request.mem.empty()) {
    if (Error error = request.mem.check_gpus(kOption, gpus)) return error;
  }
  std::vector<region::DeviceSpec> decided;
  for (unsigned index = 0; index < gpus; ++index) {
    region::DeviceSpec spec;
    spec.identity = devices[index].identity;
    spec.context = devices[index].context;
    spec.usable_bytes = devices[index].usable_bytes;
    spec.block_bytes = devices[index].block_bytes;
    if (Error error = decide_memory(config, request, shards, devices[index], index, gpus, &spec.memory_limit)) {
      return error;
    }
    spec.sm_percent = request.sm.value_or(std::min(config.default_sm.value_or(config.max_sm), config.max_sm));
    decided.push_back(spec);
  }
  *limits = std::move(decided);
  return {};
}

Error check_step(const Request &step, const std::optional<Request> &original, const node::RegionLimits &job) {
  if (step.opt_out) {
    return make_error(Fault::invalid,
                      "--gpu-mem=none: this job has limits, and they hold for all its steps; submit it without them");
  }
  if (!step.mem.empty()) {
    const auto gpus = static_cast<unsigned>(job.devices.size());
    if (Error error = step.mem.check_gpus(kOption, gpus)) return error;
    for (unsigned index = 0; index < gpus; ++index) {
      const region::DeviceSpec &device = job.devices[index];
      std::uint64_t asked = 0;
      std::uint64_t held = device.memory_limit;
      if (Error error = step.mem.resolve(kOption, index, node::usable_memory(device), &asked)) return error;
      if (original && !original->mem.empty() && !original->mem.check_gpus(kOption, gpus)) {
        if (Error error = original->mem.resolve(kOption, index, node::usable_memory(device), &held)) return error;
      }
      if (asked >= held) continue;
      return make_error(Fault::invalid,
                        "--gpu-mem: this step asks for %s, less than the %s of its job; limits hold for the whole "
                        "job: give the lower one when you submit it",
                        node::format_bytes(asked).c_str(), node::format_bytes(held).c_str());
    }
  }
  if (step.sm) {
    for (const region::DeviceSpec &device : job.devices) {
      const std::uint32_t held = original && original->sm ? *original->sm : device.sm_percent;
      if (*step.sm >= held) continue;
      return make_error(Fault::invalid,
                        "--gpu-sm: this step asks for %u percent, less than the %u of its job; limits hold for the "
                        "whole job: give the lower one when you submit it",
                        *step.sm, held);
    }
  }
  return {};
}

}  // namespace vgpu::spank
