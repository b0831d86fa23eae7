#include "job.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "../bench_region.h"
#include "region/region.h"
#include "region/sm_words.h"

namespace bench {

namespace {

constexpr std::uint64_t kMemory = std::uint64_t{16} << 30;

std::string new_name() {
  static unsigned made = 0;
  return "sm-" + std::to_string(++made);
}

}  // namespace

SmJob::SmJob(const SmNode &node, unsigned device, Limit limit, unsigned ranks, const std::vector<std::string> &work,
             const JobExtras &extras)
    : node_(node), device_(device), launched_(!extras.launcher.empty()) {
  std::map<std::string, std::string> environment = node.environment();
  if (limit.limiter == Limiter::ours) {
    make_region(device, limit.percent);
    environment["VGPU_REGION"] = directory();
    environment["LD_PRELOAD"] = LIBVGPU_PATH;
  } else if (limit.limiter == Limiter::peer) {
    environment["PEER_JOB"] = node.directory() + "/" + new_name();
    environment["PEER_PERCENT"] = std::to_string(limit.percent);
    environment["LD_PRELOAD"] = PEER_PATH;
  }
  for (const auto &[name, value] : extras.environment) environment[name] = value;
  for (unsigned i = 0; i < ranks; ++i) ranks_.emplace_back(work, environment, extras.launcher);
}

SmJob::~SmJob() {
  ranks_.clear();
  if (name_.empty()) return;
  const vgpu::Error error = vgpu::region::Region::remove(node_.directory().c_str(), name_.c_str());
  if (error) std::fprintf(stderr, "%s\n", error.text);
}

void SmJob::make_region(unsigned device, unsigned percent) {
  name_ = new_name();
  vgpu::region::DeviceSpec spec;
  std::snprintf(spec.identity.uuid, sizeof spec.identity.uuid, "%s", SmNode::uuid(device).c_str());
  spec.identity.memory_bytes = spec.memory_limit = kMemory;
  spec.sm_percent = percent;
  vgpu::region::RegionSpec region;
  region.uid = getuid();
  region.launch_hooks = percent < 100;
  region.ndev = 1;
  region.devices = &spec;
  check(vgpu::region::Region::create(node_.directory().c_str(), name_.c_str(), region));
}

double SmJob::share(const std::vector<SmNode::Busy> &before, const std::vector<SmNode::Busy> &after) const {
  if (before.empty() || after.empty()) return 0;
  // Who was not there has had nothing until then.
  const auto find = [&](const SmNode::Busy &wanted) {
    for (const SmNode::Busy &one : before) {
      if (one.pid == wanted.pid && one.device == wanted.device) return one;
    }
    return SmNode::Busy{wanted.device, wanted.pid, 0, before.front().at_ns};
  };
  const auto is_ours = [&](const SmNode::Busy &one) {
    if (launched_) return one.device == device_;
    for (const Worker &rank : ranks_) {
      if (rank.pid() == one.pid) return true;
    }
    return false;
  };
  double percent = 0;
  for (const SmNode::Busy &to : after) {
    if (!is_ours(to)) continue;
    const SmNode::Busy from = find(to);
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
  check(vgpu::region::Region::attach(directory().c_str(), vgpu::region::Trust::root_or_self, &region));
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
  check(vgpu::region::change_limits(directory().c_str(), vgpu::region::Trust::root_or_self, change));
}

}  // namespace bench
