// How far the device was ever from the books and the limit: the worst of all cases, on both kinds of device, with and
// without a measured context, and with every mood of NVML. VGPU_TRUTH_FILE names what the oracles beside real clients wrote
// (see tests/clients/truth_oracle.cc); their worst counts too.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "bench/figure.h"
#include "cases.h"

namespace vgpu::truth {
namespace {

constexpr const char *kProfiles[] = {"ideal", "hardware"};
constexpr const char *kMoods[] = {"nvml_bytes=0;",
                                  "nvml_bytes=none;",
                                  "nvml_pids=mixed;",
                                  "nvml_used=reserved;",
                                  "nvml_time=10ms..100ms;",
                                  "nvml_unsupported=nvmlDeviceGetComputeRunningProcesses*;",
                                  "nvml_seed=16; nvml_time=1ms..20ms;"};

struct Worst {
  Judge judge;
  double waste_percent = 0;

  void add(const Case &one, const char *words, const Manner &manner, bool waste) {
    const Judge found = run_case(one, manner);
    judge.add(found);
    if (waste) waste_percent = std::max(waste_percent, found.waste_percent());
    std::printf("truth: %-18s %-40s over %5.0f MiB, by launches %4.0f MiB for %.2f s, unused %4.0f MiB, waste %s%.1f\n",
                one.name, words, in_mib(found.over_bytes()), in_mib(found.launch_over_bytes()),
                found.launch_over_seconds(), in_mib(found.unused_bytes()), waste ? "" : "not judged, ",
                found.waste_percent());
    std::fflush(stdout);
  }

  static double in_mib(std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }
};

// A line for each client: name, over, launch over, seconds, waste.
void add_clients(const char *path, double (&worst)[4]) {
  std::ifstream file(path);
  double found[4];
  for (std::string name; file >> name >> found[0] >> found[1] >> found[2] >> found[3];) {
    std::printf("truth: %s, as its oracle saw it: over %.0f bytes, by launches %.0f for %.2f s, waste %.1f\n",
                name.c_str(), found[0], found[1], found[2], found[3]);
    for (unsigned i = 0; i < 4; ++i) worst[i] = std::max(worst[i], found[i]);
  }
}

void run() {
  Worst worst;
  for (const char *profile : kProfiles) {
    for (const bool known : {false, true}) {
      const std::string words = std::string(profile) + (known ? ", context measured" : "");
      const Manner manner = {"profile=" + std::string(profile) + ";", known, 2000};
      for (const Case &one : cases()) worst.add(one, words.c_str(), manner, one.has_waste);
    }
  }
  for (const char *mood : kMoods) {
    for (const Case &one : cases()) worst.add(one, mood, {mood, true, 300}, false);
  }
  double all[] = {static_cast<double>(worst.judge.over_bytes()), static_cast<double>(worst.judge.launch_over_bytes()),
                  worst.judge.launch_over_seconds(), worst.waste_percent};
  if (const char *path = std::getenv("VGPU_TRUTH_FILE")) add_clients(path, all);
  bench::print_figure("truth.over_bytes", all[0], "bytes", 0);
  std::printf("truth: launches brought at most %.0f MiB beyond the limit\n", all[1] / static_cast<double>(kMiB));
  bench::print_figure("truth.launch_over_bytes", all[2], "s", 1);
  bench::print_figure("truth.waste_percent", all[3], "%", 3);
}

}  // namespace
}  // namespace vgpu::truth

int main() { vgpu::truth::run(); }
