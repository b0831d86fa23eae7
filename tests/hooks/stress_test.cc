// Sixty-four ranks, every call that takes memory, and SIGKILL at any instruction: what calls show stays within the limit.
//
// Two oracles, both without tolerance. Ranks write down what they hold (ledger.h); every rank after every allocation, and a
// watcher all the time, adds up what was held at one instant. And at random moments the world is frozen and the simulated
// driver's own blocks are counted: those of allocations may not exceed what their rank was charged, nor the limit.
// Contexts, modules and what dead processes have not given back are beyond any call; how far they go over is measured.
// VGPU_STRESS_SECONDS sets how long (default 5; CI 60, soak 600).
#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "ledger.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr std::uint64_t kContext = 4 * kMiB;
constexpr std::uint64_t kLargestModule = 4 * kMiB;
constexpr std::uint64_t kLargestRequest = 12 * kMiB;
constexpr std::uint64_t kLimit = 512 * kMiB;

// What the driver's books say about one device while the world stands still. In bytes.
struct Books {
  std::map<pid_t, std::uint64_t> allocated;  // by calls, of living ranks
  std::map<pid_t, std::uint64_t> pooled;     // of these, in pools
  std::uint64_t all_allocated = 0;
  std::uint64_t untracked = 0;  // contexts, modules
  std::map<pid_t, std::uint64_t> untracked_of;
  std::uint64_t dead = 0;  // of processes that are gone
};

class HooksStressTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(Region::create(directory_.path().c_str(), "7", make_spec(devices_of(node_, kLimit))));
    region_ = directory_.path() + "/7";
    ledger_file_ = ScopedFd(memfd_create("ledger", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(ledger_file_.get(), sizeof(Ledger)), 0);
    void *memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, ledger_file_.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    ledger_ = static_cast<Ledger *>(memory);
    ledger_->limit_blocks = kLimit / kBlock;
    complaints_ = ScopedFd(open(complaints_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    for (unsigned rank = 0; rank < kStressRanks; ++rank) start(rank);
  }
  void TearDown() override {
    thaw();
    for (unsigned rank = 0; rank < kStressRanks; ++rank) {
      if (pids_[rank] > 0) end(rank);
    }
    munmap(ledger_, sizeof(Ledger));
  }

  std::string complaints_path() const { return directory_.path() + "/stderr"; }

  void start(unsigned rank) {
    std::vector<std::string> environment = environment_of_rank(node_, region_);
    environment.push_back("LSAN_OPTIONS=detect_leaks=0");  // a rank ends with all it has
    pids_[rank] = launch({built("tests/hooks/hooks_client"),
                          {"stress", std::to_string(rank), std::to_string(random_() % 1'000'000)},
                          environment,
                          {-1, -1, complaints_.get()},
                          ledger_file_.get()});
    ++starts_;
  }
  // A rank that is stopped. Crossed out before it dies: from then on others may have what it had.
  void end_stopped(unsigned rank) {
    for (unsigned dev = 0; dev < kStressDevices; ++dev) ledger_->set(rank, dev, 0);
    kill(pids_[rank], SIGKILL);
    wait_for(pids_[rank]);
    pids_[rank] = 0;
  }

  void end(unsigned rank) {
    kill(pids_[rank], SIGSTOP);
    if (WIFSTOPPED(wait_for(pids_[rank], WUNTRACED))) {
      end_stopped(rank);
    } else {
      pids_[rank] = 0;  // it came to its own end
    }
  }

  // Stops all ranks, wherever they are. Those that came to their end are started again.
  void freeze() {
    for (const pid_t pid : pids_) kill(pid, SIGSTOP);
    for (unsigned rank = 0; rank < kStressRanks; ++rank) {
      while (true) {
        const int status = wait_for(pids_[rank], WUNTRACED);
        if (WIFSTOPPED(status)) break;
        ASSERT_TRUE(exited_with(status, 0)) << "rank " << rank << ": status " << status << ": " << last_complaint();
        start(rank);
        kill(pids_[rank], SIGSTOP);
      }
    }
  }
  void thaw() {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGCONT);
    }
  }

  Books count(unsigned device) const {
    Books books;
    simgpu::DeviceState &state = node_.state(device);
    for (std::uint32_t block = 0; block < state.block_count; ++block) {
      const std::uint32_t word = state.owners()[block].load();
      if (word == 0) continue;
      const pid_t pid = node_.processes().slots[simgpu::owner_slot(word)].host_pid;
      const simgpu::BlockUse use = simgpu::owner_use(word);
      const bool by_call =
          use != simgpu::BlockUse::kContext && use != simgpu::BlockUse::kModule && use != simgpu::BlockUse::kCode;
      if (std::find(std::begin(pids_), std::end(pids_), pid) == std::end(pids_)) {
        books.dead += kBlock;
      } else if (by_call) {
        books.allocated[pid] += kBlock;
        if (use == simgpu::BlockUse::kPool) books.pooled[pid] += kBlock;
        books.all_allocated += kBlock;
      } else {
        books.untracked += kBlock;
        books.untracked_of[pid] += kBlock;
      }
    }
    return books;
  }

  // The world is frozen: nothing is between two looks.
  void audit() {
    Snapshot snapshot;
    ASSERT_FALSE(Snapshot::read(region_.c_str(), Trust::root_or_self, Detail::memory, &snapshot));
    for (unsigned dev = 0; dev < kStressDevices; ++dev) {
      const Books books = count(dev);
      std::map<pid_t, std::uint64_t> charged, charged_for_all;
      std::uint64_t all_charged = 0;
      EXPECT_TRUE(snapshot.device(dev).ranks_add_up);
      for (unsigned rank = 0; rank < snapshot.ranks(); ++rank) {
        const std::uint64_t data = snapshot.memory(rank, dev, Kind::data);
        const auto pid = static_cast<pid_t>(snapshot.rank(rank).owner.pid);
        charged[pid] += data;
        for (const Kind kind : {Kind::data, Kind::context, Kind::module, Kind::other}) {
          charged_for_all[pid] += snapshot.memory(rank, dev, kind);
        }
        all_charged += data;
      }
      std::uint64_t written = 0;
      ASSERT_TRUE(ledger_->sum(dev, &written));
      for (unsigned rank = 0; rank < kStressRanks; ++rank) {
        const pid_t pid = pids_[rank];
        if (ledger_->ranks[rank].hides.load()) {
          // What it has in hiding is charged, but perhaps for a module. It may be just making a context or a module.
          const std::uint64_t untracked = books.untracked_of.count(pid) != 0 ? books.untracked_of.at(pid) : 0;
          charged[pid] = charged_for_all[pid] + kContext + kLargestModule - untracked;
        }
        const std::uint64_t own = blocks_in(ledger_->ranks[rank].held[dev].load()) * kBlock;
        EXPECT_LE(own, charged[pid]) << "a rank holds more than it was charged";
      }
      std::uint64_t growing = 0;
      for (const auto &[pid, bytes] : books.allocated) {
        // A pool that is too fragmented for a request grows behind our back, and is made to shrink again by the same call.
        const std::uint64_t more = bytes - std::min(bytes, charged[pid]);
        EXPECT_LE(more, books.pooled.count(pid) != 0 ? kLargestRequest : 0)
            << "the driver gave a rank more than it was charged";
        growing += more;
      }
      pools_over_ = std::max(pools_over_, growing);
      EXPECT_LE(written * kBlock, kLimit) << "over the limit, by the ranks' account";
      EXPECT_LE(books.all_allocated, kLimit + growing) << "over the limit, by the driver's books";
      EXPECT_LE(all_charged, kLimit) << "over the limit, by the region";
      const std::uint64_t living = books.all_allocated + books.untracked;
      hidden_over_ = std::max(hidden_over_, living - std::min(living, kLimit));
      dead_over_ = std::max(dead_over_, living + books.dead - std::min(living + books.dead, kLimit));
      most_allocated_ = std::max(most_allocated_, books.all_allocated);
    }
  }

  std::vector<std::string> complaints() const {
    std::ifstream file(complaints_path());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  std::string last_complaint() const {
    const std::vector<std::string> lines = complaints();
    return lines.empty() ? "" : lines.back();
  }
  std::uint64_t total(std::atomic<std::uint64_t> RankLedger::*figure) const {
    std::uint64_t sum = 0;
    for (const RankLedger &rank : ledger_->ranks) sum += (rank.*figure).load();
    return sum;
  }

  Node node_{
      "context=4MiB; module=1MiB; reserved=16MiB; visibility_ms=0; memory=2064MiB; pool_chunk=2MiB; idle_ms=300; "
      "device; device"};
  TemporaryDirectory directory_;
  std::string region_;
  ScopedFd ledger_file_, complaints_;
  Ledger *ledger_ = nullptr;
  pid_t pids_[kStressRanks] = {};
  std::mt19937 random_{20261116};
  unsigned starts_ = 0;
  std::uint64_t hidden_over_ = 0, dead_over_ = 0, pools_over_ = 0, most_allocated_ = 0;
};

TEST_F(HooksStressTest, NeverOverTheLimit) {
  std::atomic<bool> done{false};
  std::uint64_t looks = 0;
  std::thread watcher([&] {
    while (!done.load()) {
      for (unsigned dev = 0; dev < kStressDevices; ++dev) looks += ledger_->look(dev);
      sleep_ms(0);
    }
  });
  const double end_ms = now_ms() + stress_seconds() * 1000;
  unsigned freezes = 0, kills = 0;
  while (now_ms() < end_ms && !HasFailure()) {
    sleep_ms(static_cast<long>(random_() % 60));
    freeze();
    if (HasFatalFailure()) break;
    audit();
    ++freezes;
    for (unsigned victims = random_() % 4; victims > 0; --victims) {
      const unsigned rank = random_() % kStressRanks;
      end_stopped(rank);
      ++kills;
      start(rank);
      kill(pids_[rank], SIGSTOP);
      wait_for(pids_[rank], WUNTRACED);
    }
    thaw();
  }
  thaw();
  // Half of them are killed, the others may come to their own end.
  ledger_->stop.store(true);
  for (unsigned rank = 0; rank < kStressRanks; ++rank) {
    if (rank % 2 == 0 || HasFailure()) {
      end(rank);
      continue;
    }
    const int status = wait_for(pids_[rank]);
    pids_[rank] = 0;
    EXPECT_TRUE(exited_with(status, 0)) << "rank " << rank << ": status " << status << ": " << last_complaint();
  }
  done.store(true);
  watcher.join();

  for (unsigned dev = 0; dev < kStressDevices; ++dev) {
    EXPECT_LE(ledger_->most[dev].load(), ledger_->limit_blocks) << "over the limit in what calls show";
  }
  unsigned reclaimed = 0;
  ASSERT_FALSE(sweep_region(region_.c_str(), Trust::root_or_self, &reclaimed));
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(region_.c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  for (unsigned dev = 0; dev < kStressDevices; ++dev) {
    EXPECT_EQ(snapshot.device(dev).memory_used, 0u);
    for (int waited = 0; node_.held(dev) != 0 && waited < 5000; ++waited) sleep_ms(1);
    EXPECT_EQ(node_.held(dev), 0u);
  }
  const std::vector<std::string> lines = complaints();
  EXPECT_LE(lines.size(), starts_) << "more than one line from a process";
  for (const std::string &line : lines) {
    ASSERT_EQ(line.rfind("vgpu: job 7, GPU ", 0), 0u) << line;
    ASSERT_NE(line.find(": out of memory: "), std::string::npos) << line;
  }

  const std::uint64_t most = std::max(ledger_->most[0].load(), ledger_->most[1].load()) * kBlock;
  const auto whole = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%llu operations by %u processes, %llu allocations, %llu refused, %u killed, %u freezes\n",
              whole(total(&RankLedger::operations)), starts_, whole(total(&RankLedger::allocations)),
              whole(total(&RankLedger::refusals)), kills, freezes);
  std::printf("limit %llu MiB; most that calls showed: %llu MiB in %llu + %llu looks, %llu MiB in the driver's books\n",
              whole(kLimit / kMiB), whole(most / kMiB), whole(total(&RankLedger::checks)), whole(looks),
              whole(most_allocated_ / kMiB));
  std::printf("overshoot_bytes %llu, hidden_overshoot_bytes %llu (with what the dead still hold: %llu)\n",
              whole(most > kLimit ? most - kLimit : 0), whole(hidden_over_), whole(dead_over_));
  std::printf("pools that were just growing: %llu bytes beyond what was charged\n", whole(pools_over_));
  EXPECT_GT(total(&RankLedger::allocations), 1000u);
  EXPECT_GT(total(&RankLedger::refusals), 100u) << "the limit was never reached: nothing was tested";
  EXPECT_GT(total(&RankLedger::checks) + looks, 1000u);
  EXPECT_GT(freezes, 0u);
  EXPECT_GT(kills, 0u);
  // At most what each rank is just making, or has loaded behind our back.
  EXPECT_LE(hidden_over_, kStressRanks * (kContext + kLargestModule));
}

}  // namespace
}  // namespace vgpu::test
