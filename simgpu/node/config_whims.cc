// Keys about what hardware and its driver do that an ideal device does not, and the profiles that set several of them.
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
  return true;
}

const char *apply_whim(const std::string &key, const std::string &value, DeviceFacts *facts) {
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
      return parse_duration(value, row.ns) && *row.ns <= kLongestNs ? nullptr : "not a duration (like 5us) of up to 1 s";
    }
  if (key == "profile") return set_profile(value, facts) ? nullptr : "not one of ideal, hardware";
  if (key == "function") return parse_bytes(value, &facts->function_bytes) ? nullptr : "not a size (like 512KiB)";
  if (key == "local_memory") {
    facts->local_memory_grows = value == "grows";
    return value == "grows" || value == "fixed" ? nullptr : "not one of fixed, grows";
  }
  if (key == "block") {
    const bool known = parse_bytes(value, &facts->block_bytes);
    for (uint64_t bytes = kBlockBytes; known && bytes <= kLargestBlockBytes; bytes *= 2)
      if (facts->block_bytes == bytes) return nullptr;
    return "not one of 2MiB, 4MiB, 8MiB, 16MiB";
  }
  return "no such key";
}

}  // namespace simgpu
