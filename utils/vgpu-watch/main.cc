// vgpu-watch: every few seconds compares what the jobs of this node hold of its GPUs with what they may. See vgpu-watch(8).
//
//   collect (what is there) -> judge (who has done wrong) -> act (say it, end it)
//
// The limits need no daemon: if this one is gone, they hold as before, and nobody looks after those who get around them.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "act.h"
#include "base/clock.h"
#include "collect.h"
#include "judge.h"
#include "node/inherited_files.h"
#include "node/plugstack.h"
#include "node/print_error.h"
#include "node/small_files.h"
#include "node/watcher.h"

namespace vgpu::watch {

namespace {

constexpr std::int64_t kPeriod_ns = 2'500'000'000;  // three samples, and more, within ten seconds
constexpr std::string_view kUsage = "usage: vgpu-watch [KEY=VALUE...]    as in plugstack.conf; without, what it says\n";
constexpr std::string_view kVersion = "vgpu-watch (slurm-vgpu) " VGPU_VERSION "\n";

Error read_keys(int argc, char **argv, std::vector<std::string> *keys, node::SiteConfig *config) {
  if (argc > 1) {
    keys->assign(argv + 1, argv + argc);
    return node::SiteConfig::parse(argc - 1, argv + 1, config);
  }
  node::Plugstack plugstack;
  if (Error error = node::read_plugstack("", &plugstack)) return error;
  *keys = plugstack.keys;
  *config = plugstack.config;
  return plugstack.bad_keys;
}

// Out of slurmd's group, which Slurm wants for itself; there are no others to be in. Of version 1, or in the root already:
// nothing has to be done.
void enter_own_cgroup() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/") || line == "0::/") continue;
    const std::string group = "/sys/fs/cgroup/vgpu-watch";
    mkdir(group.c_str(), 0755);
    const ScopedFd members(open((group + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    if (members) (void)node::write_all(members.get(), "0");
  }
}

// Says what changed, and nothing every few seconds.
class Complaint {
 public:
  void update(const Error &error) {
    if (error && said_.empty()) {
      syslog(LOG_ERR, "%s; nobody is audited until that is over", error.text);
      said_ = error.text;
    } else if (!error && !said_.empty()) {
      syslog(LOG_INFO, "over: %s", said_.c_str());
      said_.clear();
    }
  }

 private:
  std::string said_;
};

// False: it is time to end. Samples that were missed are not made up for.
bool wait_for_next(const sigset_t &ending, std::int64_t *next_ns) {
  const auto now_ns = static_cast<std::int64_t>(monotonic_ns());
  *next_ns = std::max(*next_ns + kPeriod_ns, now_ns);
  const timespec left = {(*next_ns - now_ns) / 1'000'000'000, (*next_ns - now_ns) % 1'000'000'000};
  int signal;
  do {
    signal = sigtimedwait(&ending, nullptr, &left);
  } while (signal < 0 && errno == EINTR);
  return signal < 0;
}

void watch_node(const node::SiteConfig &config, const node::WatchLock &lock, const sigset_t &ending) {
  Collector collector(config);
  Judge judge;
  const Actor actor(config, collector);
  Complaint complaint;
  auto next_ns = static_cast<std::int64_t>(monotonic_ns());
  while (wait_for_next(ending, &next_ns) && lock.is_still_there()) {
    Sample sample;
    complaint.update(collector.collect(&sample));
    if (config.audit == node::Audit::off) continue;
    for (const Finding &finding : judge.judge(sample)) actor.act(finding);
  }
}

}  // namespace

int run(int argc, char **argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--help") return node::write_all(STDOUT_FILENO, kUsage) ? 0 : 1;
  if (argc == 2 && std::string_view(argv[1]) == "--version") return node::write_all(STDOUT_FILENO, kVersion) ? 0 : 1;
  std::vector<std::string> keys;
  node::SiteConfig config;
  if (Error error = read_keys(argc, argv, &keys, &config)) {
    node::print_error("%s", error.text);
    syslog(LOG_ERR, "%s", error.text);
    return 1;
  }
  std::string told = VGPU_VERSION;
  for (const std::string &key : keys) told += " " + key;
  node::WatchLock lock;
  if (Error error = lock.take(config.directory(), told)) {
    if (error.fault == Fault::exists) return 0;
    node::print_error("%s", error.text);
    syslog(LOG_ERR, "%s", error.text);
    return 1;
  }
  enter_own_cgroup();
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigprocmask(SIG_SETMASK, &ending, nullptr);
  signal(SIGPIPE, SIG_IGN);
  rlimit files = {};  // a descriptor for each process that uses a GPU
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  watch_node(config, lock, ending);
  return 0;
}

}  // namespace vgpu::watch

int main(int argc, char **argv) {
  vgpu::node::close_inherited_files();
  openlog("vgpu-watch", LOG_PID, LOG_DAEMON);
  try {
    return vgpu::watch::run(argc, argv);
  } catch (const std::exception &exception) {
    syslog(LOG_ERR, "internal error: %s; please report it", exception.what());
    return 1;
  }
}
