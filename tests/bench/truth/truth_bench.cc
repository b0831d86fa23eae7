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
struct Mood {
  const char *node;
  bool silent;  // nothing about processes
};
constexpr Mood kMoods[] = {{"nvml_bytes=0;", true},
                           {"nvml_bytes=none;", true},
                           {"nvml_unsupported=nvmlDeviceGetComputeRunningProcesses*;", true},
                           {"nvml_pids=mixed;", false},
                           {"nvml_used=reserved;", false},
                           {"nvml_time=10ms..100ms;", false},
                           {"nvml_seed=16; nvml_time=1ms..20ms;", false}};

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

// The largest of each over all cases and clients.
struct Figures {
  double over = 0, launch_over = 0, growth = 0, seconds = 0, waste = 0;

  void add(const Figures &other) {
    over = std::max(over, other.over);
    launch_over = std::max(launch_over, other.launch_over);
    growth = std::max(growth, other.growth);
    seconds = std::max(seconds, other.seconds);
    waste = std::max(waste, other.waste);
  }
};

// What truth_oracle wrote, a line for each client.
void add_clients(const char *path, Figures *figures) {
  std::ifstream file(path);
  Figures found;
  for (std::string name;
       file >> name >> found.over >> found.launch_over >> found.growth >> found.seconds >> found.waste;) {
    std::printf("truth: %s, as its oracle saw it: over %.0f bytes, by launches %.0f for %.2f s, waste %.1f\n",
                name.c_str(), found.over, found.launch_over, found.seconds, found.waste);
    figures->add(found);
  }
}

void run() {
  Worst worst;
  for (const char *profile : kProfiles) {
    for (const bool known : {false, true}) {
      const std::string words = std::string(profile) + (known ? ", context measured" : "");
      const Manner manner = {"profile=" + std::string(profile) + ";", known, 2000};
      for (const Case &one : cases()) worst.add(one, words.c_str(), manner, one.nvml != Nvml::silent);
    }
  }
  for (const Mood &mood : kMoods) {
    for (const Case &one : cases()) {
      if (!mood.silent || one.nvml != Nvml::needed) worst.add(one, mood.node, {mood.node, true, 300}, false);
    }
  }
  Figures figures = {
      static_cast<double>(worst.judge.over_bytes()), static_cast<double>(worst.judge.launch_over_bytes()),
      static_cast<double>(worst.judge.growth_bytes()), worst.judge.launch_over_seconds(), worst.waste_percent};
  if (const char *path = std::getenv("VGPU_TRUTH_FILE")) add_clients(path, &figures);
  bench::print_figure("truth.over_bytes", figures.over, "bytes", 0);
  bench::print_figure("truth.launch_over_bytes", figures.launch_over, "bytes", figures.growth);
  bench::print_figure("truth.launch_over_seconds", figures.seconds, "s", 1);
  bench::print_figure("truth.waste_percent", figures.waste, "%", 3);
}

}  // namespace
}  // namespace vgpu::truth

int main() { vgpu::truth::run(); }
