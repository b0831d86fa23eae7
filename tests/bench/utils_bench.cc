// The figures of vgpuctl: how long it takes to list a full node, and what that costs those who are listed.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "bench_region.h"
#include "clock.h"
#include "figure.h"
#include "group.h"
#include "pairs.h"
#include "scratch.h"
#include "shared.h"
#include "statistics.h"

extern char **environ;

namespace bench {
namespace {

constexpr unsigned kJobs = 200;
constexpr unsigned kGpus = 8;
constexpr unsigned kRanks = 64;
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 36;

void create_job(const std::string &parent, unsigned job) {
  std::vector<vgpu::region::DeviceSpec> devices(kGpus);
  for (unsigned i = 0; i < kGpus; ++i) {
    std::snprintf(devices[i].identity.uuid, sizeof devices[i].identity.uuid, "GPU-bench-%u", i);
    devices[i].memory_limit = kPlenty;
    devices[i].identity.memory_bytes = kPlenty;
  }
  vgpu::region::RegionSpec spec;
  spec.job_id = job;
  spec.uid = getuid();
  spec.ndev = kGpus;
  spec.devices = devices.data();
  check(vgpu::region::Region::create(parent.c_str(), std::to_string(job).c_str(), spec));
}

struct JobRank {
  JobRank(const std::string &parent, unsigned job) {
    const std::string path = parent + "/" + std::to_string(job);
    check(vgpu::region::Region::attach(path.c_str(), vgpu::region::Trust::root_or_self, &region));
    check(vgpu::region::Rank::attach(region, &rank));
  }
  void reserve(unsigned dev) {
    if (rank.try_to_reserve(dev, vgpu::region::Kind::data, kPairBytes) != vgpu::region::Grant::granted)
      throw Failure("a rank got nothing");
  }

  vgpu::region::Region region;
  vgpu::region::Rank rank;
};

// Each process is a rank of every job, and holds memory on every GPU.
class BusyNode {
 public:
  BusyNode(const std::string &parent, unsigned jobs) {
    if (mkdir(parent.c_str(), 0755) != 0) throw Failure("cannot create %s: %s", parent.c_str(), std::strerror(errno));
    for (unsigned job = 1; job <= jobs; ++job) create_job(parent, job);
    for (unsigned i = 0; i < kRanks; ++i) {
      group_.spawn([&](unsigned) {
        std::vector<std::unique_ptr<JobRank>> held;
        for (unsigned job = 1; job <= jobs; ++job) {
          held.push_back(std::make_unique<JobRank>(parent, job));
          for (unsigned dev = 0; dev < kGpus; ++dev) held.back()->reserve(dev);
        }
        gate_->pass();
      });
    }
    gate_->await(kRanks);
  }

 private:
  Shared<Gate> gate_;
  Group group_;
};

// With its output thrown away.
pid_t start_vgpuctl(std::vector<std::string> words) {
  words.insert(words.begin(), VGPU_BUILD_DIR "/utils/vgpuctl/vgpuctl");
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int trouble = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (trouble != 0) throw Failure("cannot start %s: %s", arguments[0], std::strerror(trouble));
  return child;
}

// The fastest, which a busy neighbour disturbs least.
double list_ms(const std::string &directory) {
  Fastest took;
  for (unsigned i = 0; i < 15; ++i) {
    const std::uint64_t start = now_ns();
    const pid_t child = start_vgpuctl({"list", "--region-dir", directory});
    int status = 0;
    waitpid(child, &status, 0);
    took.add(static_cast<double>(now_ns() - start) / kMillisecond);
    if (status != 0) throw Failure("vgpuctl list failed");
  }
  return took.value();
}

// A reader that looks at the job ten times a second, until the object goes. Whoever asks may stop it for a while.
class Watcher {
 public:
  explicit Watcher(const std::string &directory)
      : pid_(start_vgpuctl({"list", "--watch=0.1", "--region-dir", directory})) {}
  ~Watcher() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Watcher(const Watcher &) = delete;
  Watcher &operator=(const Watcher &) = delete;

  void stop() const { kill(pid_, SIGSTOP); }
  void go_on() const { kill(pid_, SIGCONT); }

 private:
  pid_t pid_;
};

// All pairs of a while, so that nothing that happens to some of them is left out.
template <class Pair>
double pairs_in(std::uint64_t duration, Pair &&pair) {
  std::uint64_t pairs = 0;
  const std::uint64_t start = now_ns();
  std::uint64_t now = start;
  for (; now - start < duration; now = now_ns()) {
    for (unsigned i = 0; i < kBatch; ++i) pair();
    pairs += kBatch;
  }
  return static_cast<double>(pairs) / static_cast<double>(now - start);
}

double slowdown_percent(const std::string &directory) {
  constexpr unsigned kRounds = 25;
  constexpr std::uint64_t kRound = 200 * kMillisecond;
  JobRank self(directory, 1);
  const auto pair = [&] {
    self.reserve(0);
    self.rank.release(0, vgpu::region::Kind::data, kPairBytes);
  };
  const Watcher watcher(directory);
  std::vector<double> lost;
  for (unsigned round = 0; round < kRounds; ++round) {
    watcher.stop();
    const double alone = pairs_in(kRound, pair);
    watcher.go_on();
    const double watched = pairs_in(kRound, pair);
    lost.push_back(100 * (alone / watched - 1));
  }
  return median(lost);
}

void measure() {
  const ScratchDirectory scratch;
  const std::string full = scratch.path() + "/full";
  const std::string one = scratch.path() + "/one";
  const BusyNode full_node(full, kJobs);
  const BusyNode one_job(one, 1);
  print_figure("utils.list_200_ms", list_ms(full), "ms", 50);
  print_figure("utils.reader_slowdown_percent", slowdown_percent(one), "%", 2);
}

}  // namespace
}  // namespace bench

int main(int, char **argv) {
  return bench::run(argv[0], [] { bench::measure(); });
}
