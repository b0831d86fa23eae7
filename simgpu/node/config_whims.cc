// Keys about what hardware and its driver do that an ideal device does not, and the profiles that set several of them.
#include <cstdio>
#include <cstdlib>

#include "simgpu/node/config.h"

namespace simgpu {

bool set_profile(const std::string &name, DeviceFacts *facts) {
  if (name != "ideal" && name != "hardware") return false;
  const bool hardware = name == "hardware";
  facts->launch_ns = hardware ? 3000 : 0;
  facts->event_ns = hardware ? 2500 : 0;
  facts->doorbell_ns = hardware ? 4000 : 0;
  facts->event_lag_ns = hardware ? 6000 : 0;
  facts->kernel_time = {hardware ? 2000u : 0u, 0};
  facts->function_bytes = hardware ? 512 << 10 : 0;
  facts->function_ns = hardware ? 200000 : 0;
  facts->local_memory_grows = hardware;
  facts->concurrent_kernels = hardware ? kMaxRunning : 1;
  facts->capture_strict = hardware;
  return true;
}

namespace {

// "10ms", or "10ms..100ms".
bool parse_durations(const std::string &text, uint64_t *shortest, uint64_t *longest) {
  const size_t dots = text.find("..");
  if (!parse_duration(text.substr(0, dots), shortest)) return false;
  *longest = *shortest;
  return dots == std::string::npos || (parse_duration(text.substr(dots + 2), longest) && *longest >= *shortest);
}

const char *apply_nvml(const std::string &key, const std::string &value, NvmlManners *nvml) {
  if (key == "nvml_pids") {
    const struct {
      const char *name;
      NvmlPids pids;
    } known[] = {{"host", NvmlPids::kHost},
                 {"namespace", NvmlPids::kNamespace},
                 {"mixed", NvmlPids::kMixed},
                 {"foreign", NvmlPids::kForeign}};
    for (const auto &row : known)
      if (value == row.name) {
        nvml->pids = row.pids;
        return nullptr;
      }
    return "not one of host, namespace, mixed, foreign";
  }
  if (key == "nvml_bytes") {
    nvml->bytes = value == "0" ? NvmlBytes::kZero : value == "none" ? NvmlBytes::kUnavailable : NvmlBytes::kExact;
    return value == "exact" || nvml->bytes != NvmlBytes::kExact ? nullptr : "not one of exact, 0, none";
  }
  if (key == "nvml_used") {
    nvml->used_has_reserved = value == "reserved";
    return value == "allocated" || value == "reserved" ? nullptr : "not one of allocated, reserved";
  }
  if (key == "nvml_imports") {
    nvml->counts_imports = value == "all";
    return value == "maker" || value == "all" ? nullptr : "not one of maker, all";
  }
  if (key == "nvml_time")
    return parse_durations(value, &nvml->shortest_ns, &nvml->longest_ns) ? nullptr
                                                                         : "not a duration (like 10ms, or 10ms..100ms)";
  if (key == "nvml_unsupported") {
    if (value.size() >= sizeof nvml->unsupported) return "too long";
    std::snprintf(nvml->unsupported, sizeof nvml->unsupported, "%s", value.c_str());
    return nullptr;
  }
  if (key == "nvml_seed") {
    char *end = nullptr;
    nvml->seed = strtoull(value.c_str(), &end, 0);
    return !value.empty() && *end == '\0' ? nullptr : "not a number";
  }
  return "no such key";
}

}  // namespace

const char *apply_whim(const std::string &key, const std::string &value, DeviceFacts *facts, NodeConfig *config) {
  const struct {
    const char *key;
    uint64_t *ns;
  } times[] = {{"launch_time", &facts->launch_ns},
               {"event_time", &facts->event_ns},
               {"doorbell", &facts->doorbell_ns},
               {"event_lag", &facts->event_lag_ns},
               {"function_time", &facts->function_ns}};
  for (const auto &row : times)
    if (key == row.key) {
      constexpr uint64_t kLongestNs = 1000000000;
      return parse_duration(value, row.ns) && *row.ns <= kLongestNs ? nullptr
                                                                    : "not a duration (like 5us) of up to 1 s";
    }
  if (key == "profile") return set_profile(value, facts) ? nullptr : "not one of ideal, hardware";
  if (key == "function") return parse_bytes(value, &facts->function_bytes) ? nullptr : "not a size (like 512KiB)";
  if (key == "local_memory") {
    facts->local_memory_grows = value == "grows";
    return value == "grows" || value == "fixed" ? nullptr : "not one of fixed, grows";
  }
  if (key == "capture_strict") {
    facts->capture_strict = value == "yes";
    return value == "yes" || value == "no" ? nullptr : "not one of yes, no";
  }
  if (key == "concurrent_kernels") {
    char *end = nullptr;
    facts->concurrent_kernels = static_cast<uint32_t>(strtoul(value.c_str(), &end, 10));
    const bool known = *end == '\0' && facts->concurrent_kernels >= 1 && facts->concurrent_kernels <= kMaxRunning;
    return known ? nullptr : "not a number from 1 to 8";
  }
  if (key == "block") {
    const bool known = parse_bytes(value, &facts->block_bytes);
    for (uint64_t bytes = kBlockBytes; known && bytes <= kLargestBlockBytes; bytes *= 2)
      if (facts->block_bytes == bytes) return nullptr;
    return "not one of 2MiB, 4MiB, 8MiB, 16MiB";
  }
  return apply_nvml(key, value, &config->nvml);
}

}  // namespace simgpu
