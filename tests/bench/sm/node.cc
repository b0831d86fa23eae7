#include "node.h"

#include <cstdio>
#include <cstdlib>

#include "../failure.h"

namespace bench {

const std::vector<unsigned> SmNode::kLagsMs = {170, 500, 1000};

SmNode::SmNode(const std::string &profile, const std::string &more, unsigned lanes) {
  std::string description = "profile=" + profile;
  if (!more.empty()) description += "; " + more;
  description += "; memory=16GiB; reserved=0; context=64MiB; visibility_ms=0; idle_ms=2000";
  for (unsigned lane = 0; lane < lanes; ++lane) {
    for (const unsigned lag : kLagsMs) {
      description += "; device; uuid=" + uuid(device(lane, lag)) + "; utilisation_lag=" + std::to_string(lag) + "ms";
    }
  }
  const char *path = std::getenv("LD_LIBRARY_PATH");
  environment_ = {{"LD_LIBRARY_PATH", path != nullptr ? SIMGPU_LIBRARIES ":" + std::string(path) : SIMGPU_LIBRARIES},
                  {"SIMGPU_NODE", scratch_.path() + "/node"},
                  {"SIMGPU_CONFIG", description},
                  {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}};
  busy();  // starts the node
}

unsigned SmNode::device(unsigned lane, unsigned lag_ms) {
  unsigned index = 0;
  while (index + 1 < kLagsMs.size() && kLagsMs[index] != lag_ms) ++index;
  return lane * static_cast<unsigned>(kLagsMs.size()) + index;
}

std::string SmNode::uuid(unsigned device) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-be7c0000-0000-4000-8000-%012x", device + 1);
  return text;
}

std::vector<SmNode::Busy> SmNode::busy() const {
  std::string command;
  for (const auto &[name, value] : environment_) command += name + "='" + value + "' ";
  FILE *lines = popen((command + SIMGPU_CTL " busy").c_str(), "re");
  std::vector<Busy> all;
  char line[256];
  while (lines != nullptr && std::fgets(line, sizeof line, lines) != nullptr) {
    Busy one{};
    unsigned long long ns = 0, at = 0;
    if (std::sscanf(line, "%u %d %llu %llu", &one.device, &one.pid, &ns, &at) != 4) continue;
    one.ns = ns;
    one.at_ns = at;
    all.push_back(one);
  }
  if (lines == nullptr || pclose(lines) != 0) throw Failure("the simulated node does not answer");
  return all;
}

}  // namespace bench
