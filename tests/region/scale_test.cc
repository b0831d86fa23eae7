// Many ranks at once: attach, exit and death in one instant.
#include <atomic>
#include <set>

#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

// N ranks in processes of their own that do each phase together.
class Crowd {
 public:
  // Each attaches, reserves `bytes`, and is then told to leave or waits to be killed.
  Crowd(const Region &region, unsigned size, std::uint64_t bytes) {
    for (unsigned i = 0; i < size; ++i) {
      members_.push_back(spawn([&] {
        while (control_->phase.load() == 0) sched_yield();
        Rank rank;
        const bool ok = !Rank::attach(region, &rank) && reserve(rank, 0, Kind::data, bytes) == Grant::granted;
        control_->slots[i].store(ok ? rank.slot() : 0);
        control_->ready.fetch_add(1);
        while (control_->phase.load() == 1) sleep_ms(1);
        rank.leave();
        return 0;
      }));
    }
    control_->phase.store(1);
    while (control_->ready.load() < size) sleep_ms(1);
  }
  ~Crowd() { end(SIGKILL); }

  std::set<unsigned> slots() const {
    std::set<unsigned> slots;
    for (std::size_t i = 0; i < members_.size(); ++i) slots.insert(control_->slots[i].load());
    return slots;
  }
  void leave_together() {
    control_->phase.store(2);
    reap();
  }
  void end(int signal) {
    for (const pid_t member : members_) kill(member, signal);
    reap();
  }

 private:
  struct Control {
    std::atomic<int> phase;
    std::atomic<unsigned> ready;
    std::atomic<unsigned> slots[kSlots];
  };

  void reap() {
    for (const pid_t member : members_) wait_for(member);
    members_.clear();
  }

  Shared<Control> control_;
  std::vector<pid_t> members_;
};

class ScaleTest : public RegionTest {
 protected:
  static constexpr std::uint64_t kLimit = 512 * kMiB;

  void SetUp() override {
    create(1, kLimit);
    ASSERT_FALSE(Rank::attach(region_, &rank_));
  }
  double reserve_everything() {
    const Stopwatch watch;
    EXPECT_EQ(reserve(rank_, 0, Kind::data, kLimit), Grant::granted) << used() << " bytes are still counted";
    const double taken = watch.cpu_ms();
    EXPECT_LT(watch.wall_ms(), 1000);
    rank_.release(0, Kind::data, kLimit);
    EXPECT_EQ(used(), 0u);
    return taken;
  }

  Rank rank_;
};

TEST_F(ScaleTest, AttachesAtOnceAllGetASlotOfTheirOwn) {
  Crowd crowd(region_, 256, kMiB);
  const std::set<unsigned> slots = crowd.slots();
  EXPECT_EQ(slots.size(), 256u);
  EXPECT_EQ(slots.count(0), 0u);
  EXPECT_EQ(used(), 256 * kMiB);
  expect_consistent();
}

TEST_F(ScaleTest, ExitsAtOnceLeaveNothing) {
  Crowd crowd(region_, 64, kMiB);
  EXPECT_EQ(used(), 64 * kMiB);
  crowd.leave_together();
  EXPECT_EQ(rank_.memory_used(0), 0u) << "the next query already tells";
  EXPECT_LT(reserve_everything(), 10);
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  EXPECT_EQ(snapshot.ranks(), 1u) << "slots are left";
  EXPECT_EQ(snapshot.device(0).exits, 64u);
}

TEST_F(ScaleTest, DeathsAtOnceAreRecoveredByTheNextReserve) {
  // The median of three: one descheduling of this process would otherwise decide.
  std::vector<double> times;
  for (int round = 0; round < 3; ++round) {
    Crowd crowd(region_, 255, 2 * kMiB);
    EXPECT_EQ(used(), 510 * kMiB);
    crowd.end(SIGKILL);
    times.push_back(reserve_everything());
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[1], 10);
}

TEST_F(ScaleTest, AFullRegionRefusesTheNextRankWithASentenceAndRecovers) {
  SKIP_IF_EMULATED("510 emulated processes take minutes to attach at once");
  {
    Crowd crowd(region_, kSlots - 2, 512);  // all but root's slot and ours
    EXPECT_EQ(crowd.slots().size(), kSlots - 2);
    Rank late;
    const Error error = Rank::attach(region_, &late);
    EXPECT_EQ(error.fault, Fault::no_slot);
    EXPECT_NE(std::strstr(error.text, "511 processes"), nullptr) << error.text;
    EXPECT_EQ(reserve(late, 0, Kind::data, 512), Grant::detached);
    EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted) << "those inside go on";
    expect_consistent();
    rank_.release(0, Kind::data, kMiB);
    crowd.end(SIGKILL);
    sleep_ms(110);
    EXPECT_EQ(reserve(late, 0, Kind::data, 512), Grant::granted) << "it gets in at its next attempt";
    late.release(0, Kind::data, 512);
  }
  reserve_everything();
}

TEST_F(ScaleTest, SlotsAreReusedWithoutEnd) {
  for (int i = 0; i < 1200; ++i) {  // more than there are slots, and than a generation can count
    const pid_t child = spawn([&] {
      Rank rank;
      return !Rank::attach(region_, &rank) && reserve(rank, 0, Kind::data, kMiB) == Grant::granted ? 0 : 1;
    });
    ASSERT_TRUE(exited_with(wait_for(child), 0)) << i;
  }
  reserve_everything();
}

}  // namespace
}  // namespace vgpu::test
