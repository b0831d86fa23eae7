// Jobs that hold to their limits, many at once, doing what honest jobs do: contexts, allocations that are refused, pools, memory that is
// shared, forks, sudden ends, stops, PID namespaces, limits that are lowered; under an NVML with whims. Nobody may be found guilty.
//
// About as many as fit into VGPU_STRESS_SECONDS, from 20 to 1000 (which take seven minutes). Samples follow each other thirty times as fast as on a node, so whatever
// is short-lived there is long-lived here. VGPU_FUZZ_SEED repeats a run, which prints its seed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <sstream>

#include "node/history.h"
#include "region/support.h"
#include "utils/vgpu-watch/collect.h"
#include "utils/vgpu-watch/judge.h"
#include "vgpu-run/support.h"

namespace vgpu::watch {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr double kPeriod_ms = 100;
constexpr char kClient[] = VGPU_BUILD_DIR "/simgpu/simgpu-client";

// simgpu-client as a rank.
class Rank {
 public:
  Rank(std::uint32_t job_id, const std::string &region, bool in_namespace) {
    int orders[2], answers[2];
    if (pipe2(orders, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      dup2(orders[0], STDIN_FILENO);
      dup2(answers[1], STDOUT_FILENO);
      dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
      setenv("SLURM_JOB_ID", std::to_string(job_id).c_str(), 1);
      setenv("VGPU_REGION", region.c_str(), 1);
      setenv("LD_PRELOAD", VGPU_BUILD_DIR "/libvgpu/libvgpu.so", 1);
      if (in_namespace)
        execlp("unshare", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", kClient, nullptr);
      execl(kClient, kClient, nullptr);
      _exit(99);
    }
    close(orders[0]);
    close(answers[1]);
    orders_ = ScopedFd(orders[1]);
    answers_ = ScopedFd(answers[0]);
  }
  ~Rank() { end(); }
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  // The first value of its answer; empty: it failed, or did not answer yet.
  std::string ask(const std::string &order) {
    if (is_stopped_ || write(orders_.get(), (order + "\n").data(), order.size() + 1) < 0) return "";
    std::string text;
    const double start = test::now_ms();
    while (text.empty() || text.back() != '\n') {
      pollfd waiting = {answers_.get(), POLLIN, 0};
      char buffer[4096];
      if (poll(&waiting, 1, 30'000) <= 0 || test::now_ms() - start > 30'000) {
        ADD_FAILURE() << "no answer to: " << order;
        return "";
      }
      const ssize_t length = read(answers_.get(), buffer, sizeof buffer);
      if (length <= 0) return "";
      text.append(buffer, static_cast<std::size_t>(length));
    }
    std::istringstream words(text);
    int result = -1;
    std::string value;
    words >> result >> value;
    return result == 0 ? value : "";
  }
  void toggle_stop() {
    is_stopped_ = !is_stopped_;
    kill(-pid_, is_stopped_ ? SIGSTOP : SIGCONT);
  }
  void end() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  std::vector<std::string> allocations, pool_allocations;
  std::string pool;

 private:
  pid_t pid_ = 0;
  bool is_stopped_ = false;
  ScopedFd orders_, answers_;
};

class Honest : public test::VgpuRun {
 protected:
  Honest() : seed_(seed()), random_(seed_) {
    std::printf("seed %u\n", seed_);
    config_.region_dir = regions_.path();
    config_.probe = VGPU_BUILD_DIR "/utils/vgpu-probe/vgpu-probe";
    config_.nvml = VGPU_BUILD_DIR "/simgpu/13.0/libnvidia-ml.so.1";
    config_.audit = node::Audit::kill;
  }

  struct Job {
    std::uint32_t id = 0;
    std::string path;
    std::uint64_t limit = 0;
    std::vector<std::unique_ptr<Rank>> ranks;
    unsigned deeds = 0;
    unsigned samples = 0;
  };

  static unsigned seed() {
    const char *text = std::getenv("VGPU_FUZZ_SEED");
    return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : std::random_device()();
  }
  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  std::unique_ptr<Job> start_job(std::uint32_t id) {
    auto job = std::make_unique<Job>();
    job->id = id;
    job->limit = (256 + draw(8) * 256) * kMiB;
    job->path = regions_.path() + "/" + std::to_string(id);
    std::vector<region::DeviceSpec> devices(node_devices_.size());
    for (std::size_t dev = 0; dev < devices.size(); ++dev) {
      devices[dev].identity = node_devices_[dev].identity;
      devices[dev].memory_limit = job->limit;
    }
    region::RegionSpec spec = test::make_spec(devices);
    spec.job_id = id;
    const Error error = region::Region::create(regions_.path().c_str(), std::to_string(id).c_str(), spec);
    EXPECT_FALSE(error) << error.text;
    for (unsigned ranks = 1 + draw(3); ranks > 0; --ranks) add_rank(job.get());
    return job;
  }
  void add_rank(Job *job) {
    job->ranks.push_back(std::make_unique<Rank>(job->id, job->path, draw(4) == 0));
    job->ranks.back()->ask("ctx " + std::to_string(draw(2)));
  }
  void end_job(Job *job) {
    job->ranks.clear();
    const Error error = region::Region::remove(regions_.path().c_str(), std::to_string(job->id).c_str());
    EXPECT_FALSE(error) << error.text;
  }

  void lower_limit(Job *job) {
    region::Snapshot before, after;
    const auto read = [&](region::Snapshot *snapshot) {
      return !region::Snapshot::read(job->path.c_str(), region::Trust::root, region::Detail::memory, snapshot);
    };
    region::LimitChange change;
    change.memory_limit = job->limit / 2;
    if (read(&before) && !change_limits(job->path.c_str(), region::Trust::root, change) && read(&after)) {
      EXPECT_FALSE(node::note_change(job->path, before, after));
    }
  }

  // To the last block, as programs do that take what they can get.
  static void fill(Job *job, Rank *rank) {
    for (std::uint64_t size = job->limit; size >= kMiB; size /= 2) {
      const std::string made = rank->ask("alloc " + std::to_string(size));
      if (!made.empty()) rank->allocations.push_back(made);
    }
  }

  void do_something(Job *job) {
    ++job->deeds;
    Rank &rank = *job->ranks[draw(static_cast<unsigned>(job->ranks.size()))];
    const std::string size = std::to_string((1 + draw(static_cast<unsigned>(job->limit / kMiB))) * kMiB);
    switch (draw(16)) {
      case 0:
      case 1:
      case 2:
        if (const std::string made = rank.ask("alloc " + size); !made.empty()) rank.allocations.push_back(made);
        break;
      case 3:
        if (rank.allocations.empty()) break;
        rank.ask("free " + rank.allocations.back());
        rank.allocations.pop_back();
        break;
      case 4:
        if (const std::string made = rank.ask("async " + size); !made.empty()) rank.pool_allocations.push_back(made);
        break;
      case 5:
        if (rank.pool_allocations.empty()) break;
        rank.ask("asyncfree " + rank.pool_allocations.back());
        rank.pool_allocations.pop_back();
        break;
      case 6:
        rank.ask("sync");
        break;
      case 7:
        if (rank.pool.empty()) rank.pool = rank.ask("poolnew");
        rank.ask("poolalloc " + rank.pool + " " + size);
        break;
      case 8:
        if (!rank.allocations.empty()) {
          const std::string handle = rank.ask("ipcget " + rank.allocations.back());
          Rank &other = *job->ranks[draw(static_cast<unsigned>(job->ranks.size()))];
          if (&other != &rank && !handle.empty()) other.ask("ipcopen " + handle);
        }
        break;
      case 9:
        rank.ask("fork");
        break;
      case 10:
        rank.toggle_stop();
        break;
      case 11:  // a sudden end, and somebody new
        rank.end();
        std::erase_if(job->ranks, [&](const auto &one) { return one.get() == &rank; });
        add_rank(job);
        break;
      case 12:
        rank.ask("module");
        rank.ask("launch 1ms 3");
        break;
      case 13:
        lower_limit(job);
        break;
      default:
        fill(job, &rank);
    }
  }

  void watch_them(const std::string &whims);

  unsigned seed_;
  std::mt19937 random_;
  test::TemporaryDirectory regions_;
  node::SiteConfig config_;
  std::vector<node::NodeDevice> node_devices_;
};

void Honest::watch_them(const std::string &whims) {
  setenv("SIMGPU_CONFIG",
         ("context=64MiB; reserved=512MiB; visibility_ms=50; " + whims + "device; memory=256GiB; device; memory=256GiB")
             .c_str(),
         1);
  if (geteuid() != 0) GTEST_SKIP() << "only root's regions are watched";
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the library is not preloaded into programs without the sanitizer";
#endif
  signal(SIGPIPE, SIG_IGN);
  node::Node node;
  // NVML's whims: now and then it does not answer.
  ASSERT_TRUE(test::eventually([&] {
    return !node::probe_devices({config_.probe, config_.nvml, "", 10'000}, &node) && node.devices.size() == 2;
  }));
  node_devices_ = node.devices;

  constexpr unsigned kAtOnce = 8;
  constexpr unsigned kSamplesEach = 12;  // more than any finding needs
  constexpr unsigned kDeedsEach = 8;
  const auto wanted = static_cast<unsigned>(std::clamp(1.25 * test::stress_seconds(), 10.0, 500.0));
  Collector collector(config_);
  Judge judge;
  std::vector<std::unique_ptr<Job>> jobs;
  unsigned started = 0, samples = 0, with_nvml = 0, holders = 0;
  double last = 0;
  while (started < wanted || !jobs.empty()) {
    while (jobs.size() < kAtOnce && started < wanted) jobs.push_back(start_job(100 + started++));
    for (auto &job : jobs) {
      if (draw(8) == 0) do_something(job.get());
    }
    if (test::now_ms() - last < kPeriod_ms) {
      test::sleep_ms(5);
      continue;
    }
    last = test::now_ms();
    Sample sample;
    (void)collector.collect(&sample);
    ++samples;
    with_nvml += sample.nvml;
    for (const JobSeen &job : sample.jobs) {
      for (const DeviceSeen &device : job.devices) holders += static_cast<unsigned>(device.holders.size());
    }
    for (const Finding &finding : judge.judge(sample)) {
      ADD_FAILURE() << "job " << finding.job_id << " " << finding.sentence;
    }
    for (auto &job : jobs) {
      if (++job->samples > kSamplesEach && job->deeds > kDeedsEach) {
        end_job(job.get());
        job.reset();
      }
    }
    std::erase(jobs, nullptr);
  }
  std::printf("%u jobs, %u samples, %u of them with NVML, %u holders seen\n", started, samples, with_nvml, holders);
  EXPECT_GT(with_nvml, samples / 3) << "nothing was seen";
  EXPECT_GT(holders, wanted) << "nobody was seen";
}

TEST_F(Honest, NobodyIsFoundGuilty) { watch_them(""); }

TEST_F(Honest, NorWhereNvmlHasWhims) {
  watch_them("nvml_time=1ms..5ms; nvml_seed=" + std::to_string(seed_ | 1) + "; ");
}

}  // namespace
}  // namespace vgpu::watch
