// The figures of the region library. Every figure is the median of several rounds; the rounds of all figures are
// interleaved, so that a noisy moment of the machine does not fall on one of them alone.
#include <csignal>
#include <memory>
#include <vector>

#include "bench_region.h"
#include "figure.h"
#include "oracle.h"
#include "pairs.h"
#include "scratch.h"

namespace bench {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 36;
constexpr unsigned kRounds = 7;

auto attach_to(const BenchRegion &made) {
  return [&made](unsigned) {
    return [attached = std::make_unique<AttachedRank>(made)] {
      if (!attached->reserve(kPairBytes)) throw Failure("refused although there is plenty");
      attached->release(kPairBytes);
    };
  };
}

// Ranks that hold memory and do nothing, until the object goes.
class IdleRanks {
 public:
  IdleRanks(const BenchRegion &made, unsigned ranks, std::uint64_t bytes)
      : group_(ranks, [&](unsigned) {
          AttachedRank attached(made);
          if (!attached.reserve(bytes)) throw Failure("an idle rank got nothing to hold");
          gate_->pass();
        }) {
    gate_->await(ranks);
  }
  Group &group() { return group_; }

 private:
  Shared<Gate> gate_;
  Group group_;
};

// From the start of Region::attach to the end of Rank::attach, in the middle one of N processes released at once.
double attach_p50_us(const std::string &scratch, unsigned processes) {
  struct Stage {
    Gate start;
    Gate done;  // nobody leaves before all have a slot
    double took_us[vgpu::region::kSlots];
  };
  const BenchRegion made(scratch, kPlenty);
  Shared<Stage> stage;
  Group group(processes, [&](unsigned index) {
    stage->start.pass();
    const std::uint64_t start = now_ns();
    AttachedRank attached(made);
    stage->took_us[index] = static_cast<double>(now_ns() - start) / kMicrosecond;
    stage->done.pass();
  });
  stage->start.release(processes);
  stage->done.release(processes);
  group.join();
  return median({stage->took_us, stage->took_us + processes});
}

double snapshot_us(const BenchRegion &crowded) {
  constexpr unsigned kReads = 100;
  std::vector<double> took;
  for (unsigned i = 0; i < kReads; ++i) {
    vgpu::region::Snapshot snapshot;
    const std::uint64_t start = now_ns();
    check(vgpu::region::Snapshot::read(crowded.directory(), vgpu::region::Trust::root_or_self,
                                       vgpu::region::Detail::memory, &snapshot));
    took.push_back(static_cast<double>(now_ns() - start) / kMicrosecond);
  }
  return median(took);
}

// 255 ranks hold the whole limit and are killed at once. How long then takes the one reserve() that needs it all. They
// are left unreaped: the hardest kind of dead to recognise.
double recover_ms(const std::string &scratch) {
  constexpr unsigned kDead = 255;
  constexpr std::uint64_t kLimit = kDead * kPairBytes;
  const BenchRegion made(scratch, kLimit);
  AttachedRank survivor(made);
  IdleRanks ranks(made, kDead, kPairBytes);
  if (survivor.reserve(kPairBytes)) throw Failure("255 ranks do not hold the whole limit");
  ranks.group().signal_all(SIGKILL);
  ranks.group().wait_for_zombies();
  const std::uint64_t start = now_ns();
  const bool granted = survivor.reserve(kLimit);
  const std::uint64_t end = now_ns();
  if (!granted) throw Failure("the memory of 255 killed ranks was not granted to the next reserve");
  return static_cast<double>(end - start) / kMillisecond;
}

// The most that 8 greedy processes ever held beyond their limit.
double overshoot_bytes(const std::string &scratch, std::uint64_t duration) {
  constexpr std::uint64_t kLimit = 5 * kPairBytes;
  struct Stage {
    Gate gate;
    std::atomic<bool> stop{false};
    Oracle oracle;
  };
  const BenchRegion made(scratch, kLimit);
  Shared<Stage> stage;
  Group group(kCrowd, [&](unsigned index) {
    AttachedRank attached(made);
    Greedy greedy(index, kPairBytes, kLimit);
    stage->gate.pass();
    while (!stage->stop.load(std::memory_order_relaxed)) greedy.step(attached, stage->oracle);
    greedy.finish(attached, stage->oracle);
  });
  stage->gate.release(kCrowd);
  sleep_ns(duration);
  stage->stop.store(true);
  group.join();
  return static_cast<double>(stage->oracle.over_bytes());
}

void measure() {
  const ScratchDirectory scratch;
  const std::string &path = scratch.path();

  const BenchRegion empty(path, kPlenty);
  const BenchRegion crowded(path, kPlenty);
  const BenchRegion watched(path, kPlenty);
  const IdleRanks idle(crowded, 255, kPairBytes);
  const IdleRanks shown(watched, 256, kPairBytes);
  const auto alone = attach_to(empty)(0);
  const auto among_idle = attach_to(crowded)(0);

  std::vector<double> pair, pair_crowd, pair_idle, attach_1, attach_64, attach_256, snapshot, recover;
  Fastest pair_p999;  // one neighbour on the machine's cores is enough to spoil a round
  double overshoot = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    pair.push_back(ns_per_call(alone, 30 * kMillisecond));
    pair_idle.push_back(ns_per_call(among_idle, 30 * kMillisecond));
    snapshot.push_back(snapshot_us(watched));
    const BenchRegion shared(path, kPlenty);
    pair_crowd.push_back(pair_ns_crowd(300 * kMillisecond, attach_to(shared)));
    pair_p999.add(pair_percentile_crowd(0.999, 300 * kMillisecond, attach_to(shared)) / kMicrosecond);
    for (unsigned i = 0; i < 8; ++i) attach_1.push_back(attach_p50_us(path, 1));
    attach_64.push_back(attach_p50_us(path, 64));
    attach_256.push_back(attach_p50_us(path, 256));
    recover.push_back(recover_ms(path));
    overshoot = std::max(overshoot, overshoot_bytes(path, 500 * kMillisecond));
  }
  print_figure("region.pair_ns", median(pair), "ns", 60);
  print_figure("region.pair_8p_ns", median(pair_crowd), "ns", 300);
  print_figure("region.pair_p999_8p_us", pair_p999.value(), "us", 5);
  print_figure("region.attach_1_p50_us", median(attach_1), "us", 300);
  print_figure("region.attach_64_p50_us", median(attach_64), "us", 300);
  print_figure("region.attach_256_p50_us", median(attach_256), "us", 300);
  print_figure("region.snapshot_256_us", median(snapshot), "us", 100);
  print_figure("region.pair_255idle_ns", median(pair_idle), "ns", 70);
  print_figure("region.recover_255_ms", median(recover), "ms", 10);
  print_figure("region.overshoot_bytes", overshoot, "bytes", 0);
}

}  // namespace
}  // namespace bench

int main(int, char **argv) {
  return bench::run(argv[0], [] { bench::measure(); });
}
