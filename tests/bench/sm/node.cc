#include "node.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "../bench_region.h"
#include "../clock.h"
#include "region/region.h"
#include "region/sm_words.h"

namespace bench {

namespace {

constexpr std::uint64_t kMemory = std::uint64_t{16} << 30;

}  // namespace

const std::vector<unsigned> SmNode::kLagsMs = {170, 500, 1000};

SmNode::SmNode() {
  const char *path = std::getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", path != nullptr ? (SIMGPU_LIBRARIES ":" + std::string(path)).c_str() : SIMGPU_LIBRARIES, 1);
  setenv("SIMGPU_NODE", (scratch_.path() + "/node").c_str(), 1);
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  std::string description = "memory=16GiB; reserved=0; context=64MiB; visibility_ms=0; idle_ms=2000";
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (const unsigned lag : kLagsMs) {
      description += "; device; uuid=" + uuid(device(lane, lag)) + "; utilisation_lag=" + std::to_string(lag) + "ms";
    }
  }
  setenv("SIMGPU_CONFIG", description.c_str(), 1);
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

std::vector<SmNode::Busy> SmNode::busy() {
  const std::unique_ptr<FILE, int (*)(FILE *)> lines(popen(SIMGPU_CTL " busy", "re"), pclose);
  std::vector<Busy> all;
  char line[256];
  while (lines && std::fgets(line, sizeof line, lines.get()) != nullptr) {
    Busy one{};
    unsigned long long ns = 0, at = 0;
    if (std::sscanf(line, "%u %d %llu %llu", &one.device, &one.pid, &ns, &at) != 4) continue;
    one.ns = ns;
    one.at_ns = at;
    all.push_back(one);
  }
  return all;
}

std::map<std::string, std::string> limited_environment(const std::string &region) {
  return {{"VGPU_REGION", region}, {"LD_PRELOAD", LIBVGPU_PATH}};
}

SmJob::SmJob(const SmNode &node, unsigned device, unsigned percent, unsigned ranks, const SmProgram &program,
             std::uint64_t until_ns)
    : node_(node) {
  std::map<std::string, std::string> environment;
  if (percent < 100) {
    static unsigned made = 0;
    name_ = "sm-" + std::to_string(++made);
    vgpu::region::DeviceSpec spec;
    std::snprintf(spec.identity.uuid, sizeof spec.identity.uuid, "%s", SmNode::uuid(device).c_str());
    spec.identity.memory_bytes = spec.memory_limit = kMemory;
    spec.sm_percent = percent;
    vgpu::region::RegionSpec region;
    region.uid = getuid();
    region.launch_hooks = true;
    region.ndev = 1;
    region.devices = &spec;
    check(vgpu::region::Region::create(node.directory().c_str(), name_.c_str(), region));
    environment = limited_environment(node.directory() + "/" + name_);
  }
  for (unsigned i = 0; i < ranks; ++i) {
    ranks_.emplace_back(program.arguments(static_cast<int>(device), until_ns), environment);
  }
}

SmJob::~SmJob() {
  ranks_.clear();
  if (name_.empty()) return;
  const vgpu::Error error = vgpu::region::Region::remove(node_.directory().c_str(), name_.c_str());
  if (error) std::fprintf(stderr, "%s\n", error.text);
}

double SmJob::share(const std::vector<SmNode::Busy> &before, const std::vector<SmNode::Busy> &after) const {
  if (before.empty() || after.empty()) return 0;
  // Who is not there has had nothing so far.
  const auto find = [](const std::vector<SmNode::Busy> &all, pid_t pid) {
    for (const SmNode::Busy &one : all) {
      if (one.pid == pid) return one;
    }
    return SmNode::Busy{0, pid, 0, all.front().at_ns};
  };
  double percent = 0;
  for (const Worker &rank : ranks_) {
    const SmNode::Busy from = find(before, rank.pid()), to = find(after, rank.pid());
    if (to.ns < from.ns) continue;  // it was killed
    percent += 100 * static_cast<double>(to.ns - from.ns) / static_cast<double>(to.at_ns - from.at_ns);
  }
  return percent;
}

void SmJob::check_ranks() const {
  for (const Worker &rank : ranks_) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(rank.pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0) {
      throw Failure("rank %d ended too early (%d)", rank.pid(), info.si_status);
    }
  }
}

void SmJob::signal(unsigned rank, int number) { kill(ranks_[rank].pid(), number); }

int SmJob::leader() const {
  vgpu::region::Region region;
  check(vgpu::region::Region::attach((node_.directory() + "/" + name_).c_str(), vgpu::region::Trust::root_or_self,
                                     &region));
  const std::uint64_t lease = region.usage().device(0).lease.load();
  if (lease == 0) return -1;
  const auto slot = static_cast<unsigned>(vgpu::region::LeaseWord::unpack(lease).slot);
  const auto pid = static_cast<pid_t>(vgpu::region::OwnerWord::unpack(region.usage().owner(slot).load()).pid);
  for (unsigned rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].pid() == pid) return static_cast<int>(rank);
  }
  return -1;
}

void SmJob::set_percent(unsigned percent) {
  vgpu::region::LimitChange change;
  change.sm_percent = percent;
  check(vgpu::region::change_limits((node_.directory() + "/" + name_).c_str(), vgpu::region::Trust::root_or_self,
                                    change));
}

}  // namespace bench
