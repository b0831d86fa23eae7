// What libvgpu adds to calls of the driver: the same work without it, with a region but no limit, and with a limit, in
// turns, each in fresh processes on one simulated node.
//
// Costs are compared by the fastest runs of each kind: whoever else uses the machine's cores can only make one slower, by a
// factor of two for seconds where they are hyperthreads, and so a median says more about the neighbour than about us.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>

#include "../bench_region.h"
#include "../clock.h"
#include "../figure.h"
#include "../group.h"
#include "../pairs.h"
#include "../scratch.h"
#include "../shared.h"
#include "../statistics.h"
#include "../worker.h"
#include "work.h"

namespace bench {

namespace {

constexpr char kUuid[] = "GPU-be7c0000-0000-4000-8000-000000000001";
constexpr char kSlowUuid[] = "GPU-be7c0000-0000-4000-8000-000000000002";  // NVML shows a process after 80 ms
constexpr char kSlowOrdinal[] = "1";
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kDevice = 80 * kGiB;
constexpr std::uint64_t kContext = std::uint64_t{64} << 20;
constexpr unsigned kRounds = 9;

enum class With { nothing, region, limit };

class Bench {
 public:
  Bench()
      : free_(scratch_.path(), kDevice, kUuid, kDevice),
        limited_(scratch_.path(), kDevice / 2, kUuid, kDevice),
        tight_(scratch_.path(), kTightLimit, kUuid, kDevice) {
    // The workers' own search path does not hold for libvgpu, which opens NVML.
    const char *path = std::getenv("LD_LIBRARY_PATH");
    setenv("LD_LIBRARY_PATH", path != nullptr ? (SIMGPU_LIBRARIES ":" + std::string(path)).c_str() : SIMGPU_LIBRARIES,
           1);
    setenv("SIMGPU_NODE", (scratch_.path() + "/node").c_str(), 1);
    const std::string description =
        "memory=80GiB; reserved=0; context=64MiB; visibility_ms=0; idle_ms=1000; device; uuid=";
    setenv("SIMGPU_CONFIG", (description + kUuid + "; device; visibility_ms=80; uuid=" + kSlowUuid).c_str(), 1);
  }

  void run() {
    const double pair = added("pairs", With::limit);
    print_figure("hooks.pair_added_ns", pair, "ns", 100);
    std::printf("hooks.pair_added_ns with a region but no limit: %.1f\n", added("pairs", With::region));
    std::printf("hooks.pair_added_ns with a second thread, as real drivers have: %.1f\n",
                added("pairs", With::limit, kBesideAThread));
    const double shared = added("small", With::limit), alone = added("small_alone", With::limit);
    std::printf("hooks.pair_added_small_ns in a block that stays: %.1f, in one of its own: %.1f\n", shared, alone);
    print_figure("hooks.pair_added_small_ns", std::max(shared, alone), "ns", 60);
    std::printf("hooks.pair_added_small_ns with a second thread, in a block of its own: %.1f\n",
                added("small_alone", With::limit, kBesideAThread));
    pairs_among_idle_ranks();
    print_figure("hooks.pair_added_100k_ns", added("many", With::limit), "ns", 120);
    print_figure("hooks.async_added_ns", added("async", With::limit), "ns", 150);
    print_figure("hooks.vmm_added_ns", added("physical", With::limit), "ns", 300);
    crowd();
    print_figure("hooks.refusal_us", refusal_us(), "us", 20);
    print_figure("hooks.module_added_us", module_added_us(), "us", 100);
    print_figure("hooks.getinfo_added_ns", added("queries", With::limit), "ns", 30);
    print_figure("hooks.launch_added_ns", one(With::limit, {"detours"}), "ns", 0);
    print_figure("hooks.launch_linked_added_ns", added("launches", With::limit), "ns", 2);
    contexts_at_once();
    contexts_in_namespaces();
    overshoot();
  }

 private:
  static constexpr std::uint64_t kTightLimit = 2 * kGiB;

  const BenchRegion &region(With with) const { return with == With::region ? free_ : limited_; }

  std::map<std::string, std::string> environment(With with) const {
    if (with == With::nothing) return {};
    return {{"VGPU_REGION", region(with).directory()}, {"LD_PRELOAD", LIBVGPU_PATH}};
  }

  double one(With with, const std::vector<std::string> &arguments) const {
    return Worker(arguments, environment(with)).result();
  }

  double added(const char *kind, With with, const char *how = "") const {
    Fastest native, ours;
    for (unsigned round = 0; round < kRounds; ++round) {
      native.add(one(With::nothing, {kind, how}));
      ours.add(one(with, {kind, how}));
    }
    return ours.value() - native.value();
  }

  double refusal_us() const {
    Fastest refusals;
    for (unsigned round = 0; round < kRounds; ++round) refusals.add(one(With::limit, {"refusals"}));
    return refusals.value();
  }

  // Of a load, far from the limit, while NVML takes 10 ms for every answer.
  double module_added_us() const {
    const auto one_load = [&](With with) {
      std::map<std::string, std::string> variables = environment(with);
      variables["SIMGPU_FAULTS"] = "nvml* delay 10";
      return Worker({"modules"}, variables).result();
    };
    Fastest native, ours;
    for (unsigned round = 0; round < kRounds; ++round) {
      native.add(one_load(With::nothing));
      ours.add(one_load(With::limit));
    }
    return ours.value() - native.value();
  }

  void pairs_among_idle_ranks() const {
    Shared<Gate> gate;
    Group idle(255, [&](unsigned) {
      AttachedRank rank(limited_);
      if (!rank.reserve(kPairBytes)) throw Failure("an idle rank was refused");
      gate->pass();
      for (;;) pause();
    });
    gate->await(255);
    print_figure("hooks.pair_added_255idle_ns", added("pairs", With::limit), "ns", 120);
    idle.signal_all(SIGKILL);
  }

  // Wall time x cores / pairs of all: what a pair costs the core that does it.
  double crowd_ns(With with, unsigned ranks, const char *kind, const char *faults = nullptr) const {
    const Window window = {now_ns() + 300 * kMillisecond, now_ns() + 900 * kMillisecond};
    double pairs = 0;
    std::vector<Worker> workers = start(with, ranks, kind, window, faults);
    for (Worker &worker : workers) pairs += worker.result();
    const double cores = std::min(ranks, usable_cores());
    return static_cast<double>(window.end_ns - window.start_ns) * cores / pairs;
  }

  std::vector<Worker> start(With with, unsigned ranks, const std::string &kind, const Window &window,
                            const char *faults = nullptr) const {
    std::vector<Worker> workers;
    std::map<std::string, std::string> variables = environment(with);
    if (faults != nullptr) variables["SIMGPU_FAULTS"] = faults;
    for (unsigned i = 0; i < ranks; ++i) {
      workers.emplace_back(
          std::vector<std::string>{kind, std::to_string(window.start_ns), std::to_string(window.end_ns)}, variables);
    }
    return workers;
  }

  // 256 MiB pairs, 8 ranks against one.
  double large_ratio(With with, const char *faults) const {
    return crowd_ns(with, 8, "large", faults) / crowd_ns(with, 1, "large", faults);
  }

  void crowd() const {
    constexpr const char *kAsSlowAsADriver = "cuMemAlloc_v2 delay 1";
    Fastest native, ours;
    std::vector<double> large, instant;
    for (unsigned round = 0; round < kRounds; ++round) {
      native.add(crowd_ns(With::nothing, 8, "crowd"));
      ours.add(crowd_ns(With::limit, 8, "crowd"));
      large.push_back(large_ratio(With::limit, kAsSlowAsADriver) / large_ratio(With::nothing, kAsSlowAsADriver));
      instant.push_back(large_ratio(With::limit, nullptr) / large_ratio(With::nothing, nullptr));
    }
    print_figure("hooks.pair_added_8p_ns", ours.value() - native.value(), "ns", 350);
    print_figure("hooks.alloc256m_8p_ratio", median(large), "ratio", 1.1);
    std::printf("the same with a driver that takes no time: %.3f\n", median(instant));
  }

  // Until the last of 8 ranks that start together has its context.
  double last_context_ms(With with) const {
    const Window window = {now_ns() + 200 * kMillisecond, 0};
    double last = 0;
    std::vector<Worker> workers = start(with, 8, "contexts", window);
    for (Worker &worker : workers) last = std::max(last, worker.result());
    return last / kMillisecond;
  }

  void contexts_at_once() const {
    std::vector<double> differences;
    for (unsigned round = 0; round < kRounds; ++round) {
      const double native = last_context_ms(With::nothing);
      differences.push_back(last_context_ms(With::limit) - native);
    }
    print_figure("hooks.init_8ranks_added_ms", median(differences), "ms", 50);
  }

  // Until the last of 8 ranks, each in a PID namespace of its own, has its context and has found out who it is.
  double last_in_namespaces_ms() const {
    const BenchRegion job(scratch_.path(), kDevice / 2, kSlowUuid, kDevice);
    const std::uint64_t start = now_ns() + 500 * kMillisecond;
    std::vector<Worker> workers;
    for (unsigned i = 0; i < 8; ++i) {
      workers.emplace_back(
          std::vector<std::string>{"contexts", std::to_string(start), "0", kSlowOrdinal},
          std::map<std::string, std::string>{{"VGPU_REGION", job.directory()}, {"LD_PRELOAD", LIBVGPU_PATH}},
          std::vector<std::string>{"unshare", "--pid", "--fork", "--kill-child"});
    }
    double last = 0;
    for (Worker &worker : workers) last = std::max(last, worker.result());
    vgpu::region::Snapshot snapshot;
    check(vgpu::region::Snapshot::read(job.directory(), vgpu::region::Trust::root_or_self, vgpu::region::Detail::memory,
                                       &snapshot));
    unsigned found = 0;
    for (unsigned i = 0; i < snapshot.ranks(); ++i) found += snapshot.rank(i).info.host_pid != 0;
    if (found != 8) throw Failure("%u of 8 ranks found out who they are", found);
    return last / kMillisecond;
  }

  void contexts_in_namespaces() const {
    if (geteuid() != 0) {
      std::printf("hooks.init_8ranks_pidns_ms needs root, who alone can make a PID namespace\n");
      return;
    }
    held_on_node();  // starts the node outside of them
    std::vector<double> results;
    for (unsigned round = 0; round < kRounds; ++round) results.push_back(last_in_namespaces_ms());
    print_figure("hooks.init_8ranks_pidns_ms", median(results), "ms", 1000);
  }

  // Eight greedy ranks at a limit that is always full.
  void overshoot() const {
    const int counters = memfd_create("counters", 0);
    if (counters < 0 || ftruncate(counters, 4096) != 0) throw Failure("no shared counters");
    const Window window = {now_ns() + 200 * kMillisecond, now_ns() + 2200 * kMillisecond};
    std::vector<Worker> workers;
    for (unsigned i = 0; i < 8; ++i) {
      workers.emplace_back(
          std::vector<std::string>{"greed", std::to_string(window.start_ns), std::to_string(window.end_ns),
                                   std::to_string(counters)},
          std::map<std::string, std::string>{{"VGPU_REGION", tight_.directory()}, {"LD_PRELOAD", LIBVGPU_PATH}});
    }
    std::uint64_t most_held = 0;
    while (now_ns() < window.end_ns) most_held = std::max(most_held, held_on_node());
    for (Worker &worker : workers) worker.result();
    std::int64_t counted[2] = {};
    if (pread(counters, counted, sizeof counted, 0) != sizeof counted) throw Failure("the counters cannot be read");
    close(counters);
    const auto over = [](std::uint64_t bytes) {
      return bytes > kTightLimit ? static_cast<double>(bytes - kTightLimit) : 0;
    };
    print_figure("hooks.overshoot_bytes", over(static_cast<std::uint64_t>(counted[1])), "bytes", 0);
    print_figure("hooks.hidden_overshoot_bytes", over(most_held), "bytes", 8 * kContext);
  }

  // The node's own books: device, host PID, bytes, ... a line for each process.
  static std::uint64_t held_on_node() {
    std::unique_ptr<FILE, int (*)(FILE *)> usage(popen(SIMGPU_CTL " usage", "re"), pclose);
    std::uint64_t sum = 0;
    char line[256];
    while (usage && std::fgets(line, sizeof line, usage.get()) != nullptr) {
      unsigned long long bytes = 0;
      if (std::sscanf(line, "%*u %*u %llu", &bytes) == 1) sum += bytes;
    }
    return sum;
  }

  ScratchDirectory scratch_;
  BenchRegion free_;
  BenchRegion limited_;
  BenchRegion tight_;
};

}  // namespace

}  // namespace bench

int main(int argc, char **argv) {
  if (argc > 2 && std::strcmp(argv[1], "work") == 0) return bench::work({argv + 2, argv + argc});
  return bench::run("hooks_bench", [] { bench::Bench().run(); });
}
