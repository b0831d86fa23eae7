// What one job's ranks get, and what the region says of it.
#include "region/accounting.h"

#include <fcntl.h>

#include <atomic>

#include "base/file_lock.h"
#include "region/files.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class AccountingTest : public RegionTest {
 protected:
  void SetUp() override {
    create(2, 10 * kMiB);
    const Error error = Rank::attach(region_, &rank_);
    ASSERT_FALSE(error) << error.text;
  }
  DeviceSnapshot look(unsigned dev = 0) {
    Snapshot snapshot;
    EXPECT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
    return snapshot.device(dev);
  }

  Rank rank_;
};

TEST_F(AccountingTest, UpToTheLastByteAndNotOneMore) {
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 10 * kMiB - 1), Grant::granted);
  EXPECT_EQ(used(), 10 * kMiB) << "rounded up to 512";
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 1), Grant::refused);
  EXPECT_EQ(used(), 10 * kMiB);
  rank_.release(0, Kind::data, 10 * kMiB - 1);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 10 * kMiB + 1), Grant::refused);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 10 * kMiB), Grant::granted);
}

TEST_F(AccountingTest, AnOddLimitIsRoundedDown) {
  LimitChange change;
  change.memory_limit = 1023;
  ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 1), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 1), Grant::refused);
}

TEST_F(AccountingTest, ARankIsAttachedOnce) {
  EXPECT_EQ(Rank::attach(region_, &rank_).fault, Fault::invalid);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
}

// Its process still holds the memory, whatever became of the object.
TEST_F(AccountingTest, ADestroyedRankStillCounts) {
  {
    Rank passing;
    ASSERT_FALSE(Rank::attach(region_, &passing));
    ASSERT_EQ(reserve(passing, 0, Kind::data, 8 * kMiB), Grant::granted);
  }
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 8 * kMiB), Grant::refused);
  sleep_ms(kGraceMs + 100);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 8 * kMiB), Grant::refused);
}

TEST_F(AccountingTest, NothingCostsNothing) {
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 0), Grant::granted);
  EXPECT_EQ(used(), 0u);
}

TEST_F(AccountingTest, AbsurdSizesAreRefusedNotWrapped) {
  for (const std::uint64_t bytes :
       {~std::uint64_t{0}, ~std::uint64_t{0} - 511, bytes_of(kMaxUnits), bytes_of(kMaxUnits) + 1}) {
    EXPECT_EQ(reserve(rank_, 0, Kind::data, bytes), Grant::refused) << bytes;
    EXPECT_EQ(used(), 0u);
  }
  EXPECT_EQ(rank_.force(0, Kind::data, bytes_of(kMaxUnits)), Grant::granted);
  EXPECT_EQ(rank_.force(0, Kind::other, kUnitBytes), Grant::refused) << "the counter is full, whatever the limit says";
  EXPECT_EQ(used(), bytes_of(kMaxUnits));
  rank_.release(0, Kind::data, bytes_of(kMaxUnits));
  EXPECT_EQ(used(), 0u);
}

TEST_F(AccountingTest, DevicesAreApart) {
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 10 * kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 1, Kind::data, 10 * kMiB), Grant::granted);
  rank_.release(0, Kind::data, kMiB);
  EXPECT_EQ(used(0), 9 * kMiB);
  EXPECT_EQ(used(1), 10 * kMiB);
}

TEST_F(AccountingTest, KindsAddUp) {
  EXPECT_EQ(reserve(rank_, 0, Kind::context, 1 * kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::module, 2 * kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 3 * kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::other, 4 * kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 1), Grant::refused);
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  ASSERT_EQ(snapshot.ranks(), 1u);
  EXPECT_EQ(snapshot.memory(0, 0, Kind::context), 1 * kMiB);
  EXPECT_EQ(snapshot.memory(0, 0, Kind::module), 2 * kMiB);
  EXPECT_EQ(snapshot.memory(0, 0, Kind::data), 3 * kMiB);
  EXPECT_EQ(snapshot.memory(0, 0, Kind::other), 4 * kMiB);
  EXPECT_EQ(snapshot.memory(0, 1, Kind::other), 0u);
}

TEST_F(AccountingTest, ForcedMemoryCountsAgainstTheNextReserve) {
  EXPECT_EQ(rank_.force(0, Kind::context, 12 * kMiB), Grant::granted);
  EXPECT_EQ(used(), 12 * kMiB);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 1), Grant::refused);
  rank_.release(0, Kind::context, 3 * kMiB);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
}

TEST_F(AccountingTest, ReleasingMoreThanIsHeldStopsAtZero) {
  RankProcess other(path());
  ASSERT_TRUE(other.reserve(kMiB));
  ASSERT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
  rank_.release(0, Kind::data, 5 * kMiB);
  EXPECT_EQ(used(), kMiB) << "the other rank's memory is untouched";
  rank_.release(0, Kind::module, kMiB);
  EXPECT_EQ(used(), kMiB);
}

TEST_F(AccountingTest, TheLimitIsTheSumOfAllRanks) {
  RankProcess a(path()), b(path());
  EXPECT_TRUE(a.reserve(4 * kMiB));
  EXPECT_TRUE(b.reserve(4 * kMiB));
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 4 * kMiB), Grant::refused);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 2 * kMiB), Grant::granted);
  EXPECT_FALSE(a.reserve(512));
}

TEST_F(AccountingTest, CountersAreNeverReset) {
  ASSERT_EQ(reserve(rank_, 0, Kind::data, 8 * kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 8 * kMiB), Grant::refused);
  rank_.release(0, Kind::data, 8 * kMiB);
  ASSERT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
  rank_.note_launches(0, 100);
  rank_.note_launches(0, 11);
  rank_.note_throttled(0, 5000);
  {
    RankProcess other(path());
    ASSERT_TRUE(other.reserve(kMiB));
    other.exit();
    RankProcess idle(path());
    idle.exit();
  }
  const DeviceSnapshot device = look();
  EXPECT_EQ(device.memory_peak, 8 * kMiB);
  EXPECT_EQ(device.refused, 1u);
  EXPECT_EQ(device.launches, 111u);
  EXPECT_EQ(device.throttled_ns, 5000u);
  EXPECT_EQ(device.exits, 1u) << "ranks that held nothing here do not count";
  EXPECT_EQ(look(1).memory_peak, 0u);
  EXPECT_EQ(look(1).exits, 0u);
}

TEST_F(AccountingTest, TheInformationalBlockTellsAboutTheRank) {
  ASSERT_EQ(reserve(rank_, 0, Kind::data, 3 * kMiB), Grant::granted);
  ASSERT_EQ(reserve(rank_, 0, Kind::module, 2 * kMiB), Grant::granted);
  rank_.release(0, Kind::data, 3 * kMiB);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 9 * kMiB), Grant::refused);
  rank_.note_launches(1, 7);
  rank_.note_throttled(1, 9);
  rank_.note_host_pid(4711);
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::liveness, &snapshot));
  const RankSnapshot &rank = snapshot.rank(0);
  ASSERT_TRUE(rank.info_valid);
  EXPECT_EQ(rank.info.peak_units, units_for(5 * kMiB));
  EXPECT_EQ(rank.info.refused, 1u);
  EXPECT_EQ(rank.info.launches, 7u);
  EXPECT_EQ(rank.info.throttled_ns, 9u);
  EXPECT_EQ(rank.info.host_pid, 4711u);
  EXPECT_EQ(rank.info.start_time & OwnerWord::Start::kMask, rank.owner.start);
  EXPECT_EQ(rank.owner.pid, static_cast<std::uint64_t>(getpid()));
  EXPECT_EQ(rank.owner.locked, 1u);
  EXPECT_EQ(rank.verdict, Verdict::alive);
}

// ---- live limits ----------------------------------------------------------------------------------------------------

TEST_F(AccountingTest, ALimitCanBeRaisedAndLoweredLive) {
  ASSERT_EQ(reserve(rank_, 0, Kind::data, 10 * kMiB), Grant::granted);
  LimitChange change;
  change.dev = 0;
  change.memory_limit = 12 * kMiB;
  const std::uint32_t generation = region_.generation().load();
  ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
  EXPECT_EQ(region_.generation().load(), generation + 1);
  EXPECT_EQ(region_.memory_limit(0), 12 * kMiB);
  EXPECT_EQ(region_.memory_limit(1), 10 * kMiB) << "only the device that was named";
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 2 * kMiB), Grant::granted);

  change.memory_limit = 5 * kMiB;  // below what is used: nothing is taken away, nothing more is had
  ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
  EXPECT_EQ(used(), 12 * kMiB);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 512), Grant::refused);
  rank_.release(0, Kind::data, 8 * kMiB);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, 512), Grant::refused);
  expect_consistent();
}

TEST_F(AccountingTest, AllDevicesAtOnce) {
  LimitChange change;
  change.memory_limit = kMiB;
  ASSERT_FALSE(change_limits(path().c_str(), Trust::root_or_self, change));
  EXPECT_EQ(region_.memory_limit(0), kMiB);
  EXPECT_EQ(region_.memory_limit(1), kMiB);
}

TEST_F(AccountingTest, BadChangesAreRefusedAndChangeNothing) {
  const auto refuse = [&](const LimitChange &change, const char *words) {
    const Error error = change_limits(path().c_str(), Trust::root_or_self, change);
    EXPECT_EQ(error.fault, Fault::invalid) << error.text;
    EXPECT_NE(std::strstr(error.text, words), nullptr) << error.text;
  };
  LimitChange change;
  change.dev = 2;
  refuse(change, "no GPU 2");
  change = {};
  change.memory_limit = 0;
  refuse(change, "out of range");
  change = {};
  change.sm_percent = 0;
  refuse(change, "1 to 100");
  change.sm_percent = 50;
  refuse(change, "launches are not hooked");
  EXPECT_EQ(region_.memory_limit(0), 10 * kMiB);
  EXPECT_EQ(region_.generation().load(), 0u);
}

TEST_F(AccountingTest, TheSmLimitOfAJobThatHooksLaunches) {
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  RegionSpec spec = make_spec(devices);
  spec.launch_hooks = true;
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "8", spec));
  const std::string other = directory_.path() + "/8";
  LimitChange change;
  change.sm_percent = 30;
  ASSERT_FALSE(change_limits(other.c_str(), Trust::root_or_self, change));
  Region region;
  ASSERT_FALSE(Region::attach(other.c_str(), Trust::root_or_self, &region));
  EXPECT_EQ(region.device(0).sm_percent.load(), 30u);
  EXPECT_EQ(region.memory_limit(0), kMiB);
}

TEST_F(AccountingTest, AnAdministratorThatDiesWithTheLockHoldsNobodyUp) {
  const pid_t holder = spawn([&] {
    const int fd = open((path() + "/lock").c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_len = 1;
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) return 1;
    raise(SIGSTOP);
    return 0;
  });
  ASSERT_TRUE(WIFSTOPPED(wait_for(holder, WUNTRACED)));
  const pid_t admin = spawn([&] {
    LimitChange change;
    change.memory_limit = kMiB;
    return change_limits(path().c_str(), Trust::root_or_self, change) ? 1 : 0;
  });
  sleep_ms(100);
  EXPECT_EQ(region_.memory_limit(0), 10 * kMiB) << "one at a time";
  kill(holder, SIGKILL);
  wait_for(holder);
  EXPECT_TRUE(exited_with(wait_for(admin), 0));
  EXPECT_EQ(region_.memory_limit(0), kMiB);
}

// Whatever the job's user does to his own file, root's limit is stored.
TEST_F(AccountingTest, AUserCannotPreventALimitChange) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root and another user";
  const std::vector<DeviceSpec> devices = make_devices(1, 64 * kMiB);
  RegionSpec spec = make_spec(devices);
  spec.uid = 65534;
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "8", spec));
  const std::string other = directory_.path() + "/8";
  Shared<std::atomic<int>> phase;
  const pid_t user = spawn([&] {
    if (setuid(65534) != 0) return 2;
    Region region;
    Rank rank;
    if (Region::attach(other.c_str(), Trust::root, &region) || Rank::attach(region, &rank)) return 3;
    const int limits = open((other + "/limits").c_str(), O_RDONLY);
    struct flock lock = {};
    lock.l_type = F_RDLCK;
    if (fcntl(limits, F_OFD_SETLK, &lock) != 0) return 4;  // all of the file, for reading
    const int usage = open((other + "/usage").c_str(), O_RDWR);
    if (pwrite(usage, "X", 1, 0) != 1 || fchmod(usage, 0666) != 0) return 5;
    phase->store(1);
    while (phase->load() == 1) sleep_ms(1);
    return reserve(rank, 0, Kind::data, 60 * kMiB) == Grant::refused ? 0 : 6;
  });
  while (phase->load() == 0 && waitpid(user, nullptr, WNOHANG) == 0) sleep_ms(1);
  LimitChange change;
  change.memory_limit = 32 * kMiB;
  const Stopwatch watch;
  const Error error = change_limits(other.c_str(), Trust::root, change);
  EXPECT_FALSE(error) << error.text;
  EXPECT_LT(watch.wall_ms(), 5000);
  phase->store(2);
  EXPECT_EQ(WEXITSTATUS(wait_for(user)), 0);
}

TEST_F(AccountingTest, ALimitIsStoredEvenWhereTheUsageFileIsGone) {
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "8", make_spec(devices)));
  const std::string other = directory_.path() + "/8";
  LimitChange change;
  change.memory_limit = kMiB;
  // The device word is behind the end; then before it; then behind it, but in the same page: no SIGBUS tells.
  for (const std::size_t size : {std::size_t{0}, usage_size(1) - 1, offsetof(UsageFile, devices)}) {
    ASSERT_EQ(truncate((other + "/usage").c_str(), static_cast<off_t>(size)), 0);
    change.memory_limit += kMiB;
    const Error error = change_limits(other.c_str(), Trust::root_or_self, change);
    EXPECT_EQ(error.fault, Fault::corrupt) << size;
    EXPECT_NE(std::strstr(error.text, "the new limit is set"), nullptr) << error.text;
    RegionFiles files;
    ASSERT_FALSE(open_limits(other.c_str(), Trust::root_or_self, O_RDONLY, &files));
    std::uint64_t stored = 0;
    ASSERT_EQ(pread(files.limits.get(), &stored, 8, offsetof(LimitsFile, devices)), 8);
    EXPECT_EQ(stored, change.memory_limit);
  }
}

TEST_F(AccountingTest, AHeldLockIsATimeoutNotAForcedEntry) {
  const ScopedFd holder(open((path() + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  const ScopedFd other(open((path() + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  FileLock held, wanted;
  ASSERT_FALSE(FileLock::acquire(holder.get(), 0, 0, &held));
  for (int again = 0; again < 2; ++again) {  // the deadline is fresh each time
    const double start = now_ms();
    EXPECT_EQ(FileLock::acquire(other.get(), 0, 50, &wanted).fault, Fault::timeout);
    EXPECT_GE(now_ms() - start, 50);
    EXPECT_LT(now_ms() - start, 500);
  }
}

// ---- ghosts ---------------------------------------------------------------------------------------------------------

TEST_F(AccountingTest, AMemoryQueryShowsNoGhosts) {
  {
    RankProcess other(path());
    ASSERT_TRUE(other.reserve(3 * kMiB));
    ASSERT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
    EXPECT_EQ(rank_.memory_used(0), 4 * kMiB);
    other.exit();
  }
  EXPECT_EQ(rank_.memory_used(0), kMiB) << "it left in good order: seen at once";
  {
    RankProcess other(path());
    ASSERT_TRUE(other.reserve(3 * kMiB));
    rank_.memory_used(0);
    other.end(SIGKILL);
  }
  sleep_ms(120);
  EXPECT_EQ(rank_.memory_used(0), kMiB) << "killed: seen once the last sweep is 100 ms old";
}

TEST_F(AccountingTest, AScribblerHarmsOnlyHimself) {
  ASSERT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::granted);
  region_.usage().device(0).total.store(~std::uint64_t{0});
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::refused);
  region_.usage().device(0).total.store(0);
  rank_.release(0, Kind::data, kMiB);
  EXPECT_EQ(used(), 0u) << "no underflow";
  region_.usage().owner(rank_.slot()).store(0);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::detached);
  EXPECT_EQ(rank_.trouble().fault, Fault::corrupt);
  EXPECT_EQ(reserve(rank_, 0, Kind::data, kMiB), Grant::detached) << "for good";
}

}  // namespace
}  // namespace vgpu::test
