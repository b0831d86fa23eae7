// Freeze the world and check the books: many ranks, random operations, kills and live limits, against an oracle.
//
// Ranks write down, in memory of their own, what they were granted. At random moments all of them are stopped, at
// whatever instruction they are, and every lane must equal what its rank wrote down, give or take the one operation
// it is in. VGPU_STRESS_SECONDS sets how long (default 5; CI 60, soak 600).
#include <atomic>
#include <random>

#include "region/accounting.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr unsigned kWorkers = 8;
constexpr unsigned kDevices = 2;
constexpr std::uint64_t kLimitUnits = 1000;

// What one rank believes. It writes; the controller reads while it is stopped.
struct Ledger {
  std::atomic<unsigned> slot;
  std::atomic<std::uint64_t> held[kDevices][kKinds];
  std::atomic<std::uint64_t> in_flight[kDevices][kKinds];  // may already, or may still, count
  std::atomic<std::uint64_t> operations;
  std::atomic<std::uint64_t> refusals;
};

struct Books {
  Ledger workers[kWorkers];
};

[[noreturn]] void work(const Region &region, Ledger &ledger, std::uint64_t seed) {
  Rank rank;
  if (Rank::attach(region, &rank)) _exit(1);
  ledger.slot.store(rank.slot());
  std::mt19937_64 random(seed);
  for (;;) {
    const unsigned dev = random() % kDevices;
    const unsigned kind = random() % kKinds;
    const std::uint64_t units = 1 + random() % 40;
    std::atomic<std::uint64_t> &held = ledger.held[dev][kind];
    std::atomic<std::uint64_t> &in_flight = ledger.in_flight[dev][kind];
    // Mostly below the limit, so that most operations succeed; beyond a fair share, mostly downwards.
    const bool much = held.load() > kLimitUnits / kWorkers / kKinds;
    if (held.load() >= units && random() % 16 < (much ? 15 : 4)) {
      in_flight.store(units);  // both stores before the release: the lane counts held or held + units
      held.fetch_sub(units);
      rank.release(dev, static_cast<Kind>(kind), bytes_of(units));
      in_flight.store(0);
    } else {
      in_flight.store(units);
      if (reserve(rank, dev, static_cast<Kind>(kind), bytes_of(units)) == Grant::granted) {
        held.fetch_add(units);
      } else {
        ledger.refusals.fetch_add(1);
      }
      in_flight.store(0);
    }
    ledger.operations.fetch_add(1);
  }
}

class StressTest : public RegionTest {
 protected:
  void SetUp() override {
    create(kDevices, bytes_of(kLimitUnits));
    for (unsigned i = 0; i < kWorkers; ++i) start(i);
  }
  void TearDown() override {
    for (unsigned i = 0; i < kWorkers; ++i) end(i);
  }

  void start(unsigned i) {
    Ledger &ledger = books_->workers[i];
    ledger.slot.store(0);
    for (auto &device : ledger.held)
      for (auto &held : device) held.store(0);
    for (auto &device : ledger.in_flight)
      for (auto &units : device) units.store(0);
    const std::uint64_t seed = random_();
    workers_[i] = spawn([&, i, seed]() -> int { work(region_, books_->workers[i], seed); });
  }
  void end(unsigned i) {
    if (workers_[i] == 0) return;
    kill(workers_[i], SIGKILL);
    wait_for(workers_[i]);
    workers_[i] = 0;
  }
  void freeze() {
    for (const pid_t worker : workers_) kill(worker, SIGSTOP);
    for (const pid_t worker : workers_) {
      siginfo_t info;
      waitid(P_PID, static_cast<id_t>(worker), &info, WSTOPPED | WEXITED | WNOWAIT);
      ASSERT_EQ(info.si_code, CLD_STOPPED) << "a worker ended by itself";
      waitid(P_PID, static_cast<id_t>(worker), &info, WSTOPPED);
    }
  }
  void thaw() {
    for (const pid_t worker : workers_) kill(worker, SIGCONT);
  }

  std::uint64_t lane_units(unsigned slot, unsigned dev, unsigned kind) const {
    const Usage &usage = region_.usage();
    const Lane &lane = usage.lane(lane_number(slot, kind), dev);
    return effective_units(lane_number(slot, kind), usage.device(dev).total.load(), lane.current.load(),
                           lane.next.load());
  }

  // The world is frozen: every word is what it is. True if some operation was caught half-applied.
  bool audit(std::uint64_t limit_units) {
    bool half_applied = false;
    for (unsigned dev = 0; dev < kDevices; ++dev) {
      std::uint64_t sum = 0;
      for (unsigned slot = 0; slot < kSlots; ++slot) {
        for (unsigned kind = 0; kind < kKinds; ++kind) {
          const std::uint64_t units = lane_units(slot, dev, kind);
          sum += units;
          const Lane &lane = region_.usage().lane(lane_number(slot, kind), dev);
          half_applied = half_applied || units != LaneWord::unpack(lane.current.load()).units;
        }
      }
      const std::uint64_t total = used(dev) / kUnitBytes;
      EXPECT_EQ(sum, total) << "inexact";
      EXPECT_LE(total, limit_units) << "over the limit";
      std::uint64_t granted = 0;
      for (const Ledger &ledger : books_->workers) {
        const unsigned slot = ledger.slot.load();
        if (slot == 0) continue;
        for (unsigned kind = 0; kind < kKinds; ++kind) {
          const std::uint64_t held = ledger.held[dev][kind].load();
          const std::uint64_t in_flight = ledger.in_flight[dev][kind].load();
          const std::uint64_t units = lane_units(slot, dev, kind);
          granted += held;
          // A release stores in_flight and then lowers held: between the two, held itself is still right.
          EXPECT_TRUE(units == held || units == held + in_flight) << units << " " << held << " " << in_flight;
        }
      }
      EXPECT_LE(granted, limit_units) << "ranks were granted more than the limit";
    }
    return half_applied;
  }

  std::uint64_t operations() const {
    std::uint64_t sum = 0;
    for (const Ledger &ledger : books_->workers) sum += ledger.operations.load();
    return sum;
  }

  std::mt19937_64 random_{20261116};
  Shared<Books> books_;
  pid_t workers_[kWorkers] = {};
};

TEST_F(StressTest, FreezeTheWorld) {
  const double end_ms = now_ms() + stress_seconds() * 1000;
  unsigned freezes = 0, kills = 0, half_applied = 0;
  while (now_ms() < end_ms) {
    const timespec pause = {0, static_cast<long>(random_() % 1'500'000)};
    nanosleep(&pause, nullptr);
    freeze();
    ++freezes;
    half_applied += audit(kLimitUnits);
    if (HasFailure()) break;
    if (random_() % 4 == 0) {  // die right here, in the middle of whatever it is
      const unsigned victim = random_() % kWorkers;
      end(victim);
      ++kills;
      start(victim);
    }
    thaw();
  }
  const std::uint64_t done = operations();
  std::uint64_t refusals = 0;
  for (unsigned i = 0; i < kWorkers; ++i) {
    end(i);
    refusals += books_->workers[i].refusals.load();
  }
  unsigned reclaimed = 0;
  ASSERT_FALSE(sweep_region(path().c_str(), Trust::root_or_self, &reclaimed));
  for (unsigned dev = 0; dev < kDevices; ++dev) EXPECT_EQ(used(dev), 0u);
  std::printf("%llu operations, %llu refused, %u freezes (%u caught an operation half-applied), %u kills\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(refusals), freezes, half_applied,
              kills);
  EXPECT_GT(done, 1000u);
  EXPECT_GT(refusals, 0u) << "the limit was never reached: nothing was tested";
  EXPECT_GT(kills, 0u);
  if (stress_seconds() >= 600) {
    EXPECT_GT(half_applied, 0u) << "ten minutes, and never between the two halves";
  }
}

TEST_F(StressTest, ALimitLoweredInAStorm) {
  for (int round = 0; round < 20; ++round) {
    sleep_ms(20);
    LimitChange change;
    const std::uint64_t lowered = 100 + random_() % 400;
    change.memory_limit = bytes_of(lowered);
    ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
    // From here on every device may only shrink until it is within the new limit.
    std::uint64_t most[kDevices];
    for (unsigned dev = 0; dev < kDevices; ++dev) most[dev] = std::max(used(dev), bytes_of(lowered));
    for (int look = 0; look < 200; ++look) {
      for (unsigned dev = 0; dev < kDevices; ++dev) {
        const std::uint64_t now = used(dev);
        ASSERT_LE(now, most[dev]) << "grew beyond a lowered limit";
        most[dev] = std::max(now, bytes_of(lowered));
      }
      if (look % 20 == 0) sleep_ms(1);
    }
    freeze();
    audit(kLimitUnits);
    thaw();
    change.memory_limit = bytes_of(kLimitUnits);
    ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
  }
}

}  // namespace
}  // namespace vgpu::test
