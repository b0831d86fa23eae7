// vgpu-run: a program's ranks under a common GPU limit, without Slurm. See vgpu-run.1.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "devices.h"
#include "node/install.h"
#include "node/node_name.h"
#include "node/preload.h"
#include "node/print_error.h"
#include "node/private_region.h"
#include "node/summary.h"
#include "options.h"
#include "ranks.h"
#include "region/names.h"
#include "status.h"

namespace {

using namespace vgpu;
using namespace vgpu::run;

// The region that this process is held to already; empty if there is none.
std::string outer_region() {
  struct stat status;
  if (stat(region::kSelfRegion, &status) == 0) return region::kSelfRegion;
  const char *region = std::getenv("VGPU_REGION");
  return region != nullptr ? region : "";
}

region::RegionSpec make_spec(const Options &options, const std::vector<region::DeviceSpec> &devices) {
  region::RegionSpec spec;
  spec.uid = geteuid();
  spec.launch_hooks = options.sm_percent.value_or(100) < 100;
  spec.ndev = static_cast<unsigned>(devices.size());
  spec.devices = devices.data();
  return spec;
}

int complain(const Error &error) {
  node::print_error("%s", error.text);
  return kOwnFailure;
}

void print_lines(const std::vector<std::string> &lines) {
  for (const std::string &line : lines) node::print_error("%s", line.c_str());
}

void preload(const std::string &library) {
  const char *old = std::getenv("LD_PRELOAD");
  setenv("LD_PRELOAD", node::with_library(old != nullptr ? old : "", library).c_str(), 1);
}

int run_in_outer_region(const Options &options, const std::string &region) {
  if (options.memory || options.sm_percent || !options.gpus.empty() || options.context != 0) {
    node::print_error("the limits of %s stay in force; --gpu-mem, --gpu-sm, --gpus and --context change nothing here",
                      region.c_str());
  }
  std::vector<std::string> deaths;
  const int status = run_ranks(options.ranks, options.command, hold_signals(), &deaths);
  print_lines(deaths);
  return status;
}

// There libvgpu believes only in regions that root made, or every job could make itself a wider one.
Error check_not_in_job() {
  const char *job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr || geteuid() == 0) return {};
  return make_error(Fault::invalid, "inside a Slurm job (%.20s) only Slurm sets limits; give --gpu-mem to srun", job);
}

// Before the region goes. What cannot be read is not worth a word at the end of a run.
std::vector<std::string> summarize(const std::string &region) {
  region::Snapshot snapshot;
  if (region::Snapshot::read(region.c_str(), region::Trust::root_or_self, region::Detail::memory, &snapshot)) return {};
  return node::summary_lines(snapshot, "vgpu-run " + std::to_string(getpid()) + " on " + node::node_name(), false);
}

int run_in_own_region(const Options &options) {
  if (const Error error = check_not_in_job()) return complain(error);
  std::vector<region::DeviceSpec> devices;
  if (const Error error = find_devices(options, &devices)) return complain(error);
  node::PrivateRegion region;
  if (const Error error = region.open_parent(node::runtime_directory(std::getenv("XDG_RUNTIME_DIR"))))
    return complain(error);
  const CallersSignals signals = hold_signals();
  if (const Error error = region.create(make_spec(options, devices))) return complain(error);
  setenv("VGPU_REGION", region.path().c_str(), 1);
  // By UUID: CUDA counts GPUs in another order than nvidia-smi.
  if (!options.gpus.empty()) setenv("CUDA_VISIBLE_DEVICES", uuid_list(devices).c_str(), 1);
  std::vector<std::string> deaths;
  const int status = run_ranks(options.ranks, options.command, signals, &deaths);
  const std::vector<std::string> summary = summarize(region.path());
  region.remove();  // first: a reader who is slow to take our words must not keep it
  print_lines(deaths);
  print_lines(summary);
  return status;
}

}  // namespace

int main(int argc, char **argv) {
  int status = 0;
  const auto options = parse_options(argc, argv, &status);
  if (!options) return status;
  std::string library;
  if (const Error error = node::find_library(options->library, &library)) return complain(error);
  preload(library);
  const std::string outer = outer_region();
  return outer.empty() ? run_in_own_region(*options) : run_in_outer_region(*options, outer);
}
