// Every step of every operation, killed there and stopped there.
//
// A scenario runs in a child. A dry run lists the steps it takes; then it is run again for each of them, and the child
// kills or stops itself right behind that step. After a kill: the books balance, a live rank gets all the dead one held
// in ONE reserve, a new rank attaches. After a stop: nobody waits, and the child finishes once it may.
#include <fcntl.h>

#include <set>

#include "base/file_lock.h"
#include "region/admin.h"
#include "region/files.h"
#include "region/steps.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr std::uint64_t kLimit = 16 * kMiB;
constexpr unsigned kMaxEvents = 4096;

// ---- the child's side: count steps, act at one ----------------------------------------------------------------------

struct StepLog {
  unsigned count;
  Step steps[kMaxEvents];
};

StepLog *step_log = nullptr;
long act_at = -1;
int act_signal = 0;
std::function<void(Step)> interference;  // runs at every step, its own steps uncounted

void count_step(Step step) {
  if (step_log->count == kMaxEvents) _exit(98);
  step_log->steps[step_log->count++] = step;
  if (static_cast<long>(step_log->count) - 1 == act_at) kill(0, act_signal);  // with the children it may have
  if (interference) {
    step_hook = nullptr;
    interference(step);
    step_hook = count_step;
  }
}

// What one case works on: a fresh region with one device, and a rank of the test's own that lives throughout.
struct Stage {
  TemporaryDirectory directory;
  Region region;
  Rank live;
  std::uint64_t held_by_living = 0;        // beside the child under test
  std::unique_ptr<RankProcess> bystander;  // some scenarios need one
  pid_t torn = 0;                          // a rank that stopped or died half-way

  explicit Stage(bool attach_live) {
    const std::vector<DeviceSpec> devices = make_devices(1, kLimit);
    if (Region::create(directory.path().c_str(), "7", make_spec(devices))) std::abort();
    if (Region::attach(path().c_str(), Trust::root_or_self, &region)) std::abort();
    if (attach_live) attach_live_rank();
  }
  ~Stage() {
    if (torn > 0) {
      kill(torn, SIGKILL);
      wait_for(torn);
    }
  }
  std::string path() const { return directory.path() + "/7"; }
  void attach_live_rank() {
    if (Rank::attach(region, &live)) std::abort();
  }
  // A rank holding 2 MiB and stopped right after it added 3 MiB to the device word, but not yet to its lane.
  void make_torn_rank() {
    torn = spawn([&] {
      Rank rank;
      if (Rank::attach(region, &rank) || reserve(rank, 0, Kind::data, 2 * kMiB) != Grant::granted) return 1;
      step_hook = [](Step step) {
        if (step == Step::commit_swapped_total) raise(SIGSTOP);
      };
      reserve(rank, 0, Kind::data, 3 * kMiB);
      return 0;
    });
    if (!WIFSTOPPED(wait_for(torn, WUNTRACED))) std::abort();
  }
};

struct Scenario {
  const char *name;
  // In the parent, before the child starts.
  std::function<void(Stage &)> prepare = [](Stage &) {};
  // In the child: first what must be there before, then the operation under test. False: it went wrong.
  std::function<bool(Stage &, Rank &)> before = [](Stage &stage, Rank &rank) {
    return !Rank::attach(stage.region, &rank);
  };
  std::function<bool(Stage &, Rank &)> act;
  bool live_attaches_first = true;
  // In the parent, once the child is dead: what was left open, either way is right.
  std::function<void(Stage &)> after = [](Stage &) {};
};

bool granted(Grant grant) { return grant == Grant::granted; }

std::function<bool(Stage &, Rank &)> holding(std::uint64_t bytes) {
  return [bytes](Stage &stage, Rank &rank) {
    return !Rank::attach(stage.region, &rank) && granted(reserve(rank, 0, Kind::data, bytes));
  };
}

// With blocks in use, and one or two idle.
std::function<bool(Stage &, Rank &)> using_blocks(unsigned in_use, unsigned idle) {
  return [=](Stage &stage, Rank &rank) {
    if (Rank::attach(stage.region, &rank)) return false;
    if (!granted(reserve(rank, 0, Kind::other, (in_use + idle) * kUsualBlock))) return false;
    for (unsigned i = 0; i < idle; ++i) rank.add_idle(0, kUsualBlock);
    return rank.idle(0) == idle * kUsualBlock;
  };
}

bool set_limit_as_root(Stage &stage, std::uint64_t bytes) {
  RegionFiles files;
  if (open_limits(stage.path().c_str(), Trust::root_or_self, O_RDWR, &files)) return false;
  const ScopedMapping mapping(files.limits.get(), limits_size(1), PROT_READ | PROT_WRITE);
  const ScopedFd lock_file(openat(files.directory.get(), "lock", O_RDWR | O_CLOEXEC));
  FileLock lock;
  if (FileLock::acquire(lock_file.get(), 0, 1000, &lock)) return false;
  auto &limits = *static_cast<LimitsFile *>(mapping.get());
  limits.devices[0].memory_bytes.store(bytes, std::memory_order_release);
  VGPU_STEP(limit_stored);
  retire_old_limit(stage.region.usage(), 0);
  return true;
}

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  all.push_back({.name = "reserve", .before = holding(kMiB), .act = [](Stage &, Rank &rank) {
                   return granted(reserve(rank, 0, Kind::data, 4 * kMiB));
                 }});
  all.push_back({.name = "first_on_an_empty_lane",
                 .act = [](Stage &, Rank &rank) { return granted(reserve(rank, 0, Kind::module, 4 * kMiB)); }});
  all.push_back({.name = "force", .before = holding(kMiB), .act = [](Stage &, Rank &rank) {
                   return granted(rank.force(0, Kind::context, 4 * kMiB));
                 }});
  all.push_back({.name = "release", .before = holding(4 * kMiB), .act = [](Stage &, Rank &rank) {
                   rank.release(0, Kind::data, kMiB);
                   return true;
                 }});
  all.push_back({.name = "release_to_zero", .before = holding(4 * kMiB), .act = [](Stage &, Rank &rank) {
                   rank.release(0, Kind::data, 4 * kMiB);
                   return true;
                 }});
  all.push_back({.name = "failed_reserve",
                 .prepare =
                     [](Stage &stage) {
                       stage.bystander = std::make_unique<RankProcess>(stage.path());
                       if (!stage.bystander->reserve(8 * kMiB)) std::abort();
                       stage.held_by_living = 8 * kMiB;
                     },
                 .before = holding(2 * kMiB),
                 .act = [](Stage &, Rank &rank) { return reserve(rank, 0, Kind::data, 12 * kMiB) == Grant::refused; }});
  all.push_back({.name = "reserve_after_a_torn_one",
                 .prepare =
                     [](Stage &stage) {
                       stage.make_torn_rank();
                       stage.held_by_living = 5 * kMiB;
                     },
                 .act = [](Stage &, Rank &rank) { return granted(reserve(rank, 0, Kind::data, kMiB)); }});
  all.push_back({.name = "reclaim_of_a_torn_rank",
                 .prepare =
                     [](Stage &stage) {
                       stage.make_torn_rank();
                       kill(stage.torn, SIGKILL);
                       wait_for(stage.torn);
                       stage.torn = 0;
                     },
                 .act = [](Stage &, Rank &rank) { return granted(reserve(rank, 0, Kind::data, 14 * kMiB)); }});
  all.push_back({.name = "lost_race", .before = holding(kMiB), .act = [](Stage &stage, Rank &rank) {
                   // Right before our CAS somebody else's succeeds.
                   Rank rival;
                   if (Rank::attach(stage.region, &rival)) return false;
                   bool done = false;
                   interference = [&](Step step) {
                     if (step != Step::commit_read_limit || done) return;
                     done = true;
                     reserve(rival, 0, Kind::data, 512);
                   };
                   const bool ok = granted(reserve(rank, 0, Kind::data, kMiB));
                   interference = nullptr;
                   return ok && done;
                 }});
  all.push_back({.name = "suspicion",
                 .prepare =
                     [](Stage &stage) {
                       // Its address space is gone, its process is not.
                       stage.torn = spawn([&] {
                         Rank rank;
                         if (Rank::attach(stage.region, &rank)) return 1;
                         reserve(rank, 0, Kind::data, 8 * kMiB);
                         execl("/bin/sleep", "sleep", "60", nullptr);
                         return 2;
                       });
                       while (stage.region.memory_used(0) == 0) sleep_ms(1);
                       LivenessCheck liveness(stage.region.usage_path(), stage.region.usage());
                       while (liveness.token(2) == Token::held) sleep_ms(1);
                       stage.held_by_living = 8 * kMiB;
                     },
                 .act = [](Stage &, Rank &rank) { return reserve(rank, 0, Kind::data, kLimit) == Grant::refused; }});
  all.push_back({.name = "use_idle", .before = using_blocks(1, 1), .act = [](Stage &, Rank &rank) {
                   return rank.use_idle(0, kUsualBlock) && rank.top_up_idle(0, kUsualBlock);
                 }});
  all.push_back({.name = "add_idle", .before = using_blocks(2, 1), .act = [](Stage &, Rank &rank) {
                   rank.add_idle(0, kUsualBlock);
                   rank.add_idle(0, kUsualBlock);  // one too many
                   return rank.idle(0) == 2 * kUsualBlock;
                 }});
  all.push_back({.name = "theft",
                 .prepare = [](Stage &stage) { stage.live.top_up_idle(0, kUsualBlock); },
                 .act = [](Stage &, Rank &rank) { return granted(reserve(rank, 0, Kind::data, kLimit - kMiB)); },
                 .after = [](Stage &stage) { stage.live.give_up_idle(0); }});
  all.push_back({.name = "reclaim_of_a_rank_with_idle_blocks",
                 .prepare =
                     [](Stage &stage) {
                       wait_for(spawn([&] {
                         Rank rank;
                         using_blocks(1, 2)(stage, rank);
                         rank.force(0, Kind::context, kMiB);
                         raise(SIGKILL);
                         return 0;
                       }));
                     },
                 .act = [](Stage &, Rank &rank) { return granted(reserve(rank, 0, Kind::data, kLimit - kMiB)); }});
  all.push_back({.name = "correction",
                 .prepare = [](Stage &stage) { stage.live.force(0, Kind::context, 4 * kMiB); },
                 .act =
                     [](Stage &stage, Rank &) {
                       const Usage &usage = stage.region.usage();
                       const unsigned live = 1;  // the first rank's slot
                       // What its owner does meanwhile may make it void.
                       correct_context(usage, 0, {live, 2 * kMiB, mark_rest(usage, 0, live)}, 0);
                       return true;
                     },
                 .after = [](Stage &stage) { stage.live.release(0, Kind::context, 4 * kMiB); }});
  all.push_back({.name = "attach",
                 .before = [](Stage &, Rank &) { return true; },
                 .act = [](Stage &stage, Rank &rank) { return !Rank::attach(stage.region, &rank); },
                 .live_attaches_first = false});
  all.push_back({.name = "leave", .before = holding(kMiB), .act = [](Stage &, Rank &rank) {
                   rank.leave();
                   return true;
                 }});
  all.push_back({.name = "set_limit",
                 .before = [](Stage &, Rank &) { return true; },
                 .act = [](Stage &stage, Rank &) { return set_limit_as_root(stage, kLimit / 2); }});
  all.push_back({.name = "change_limits",
                 .before = [](Stage &, Rank &) { return true; },
                 .act =
                     [](Stage &stage, Rank &) {
                       LimitChange change;
                       change.memory_limit = kLimit / 2;
                       return !change_limits(stage.path().c_str(), Trust::root_or_self, change);
                     }});
  return all;
}

// ---- the parent's side ----------------------------------------------------------------------------------------------

class CrashTest : public ::testing::TestWithParam<Scenario> {
 protected:
  // Starts the scenario; it acts behind its step number `at`.
  pid_t start(const Scenario &scenario, long at, int signal) {
    stage_ = std::make_unique<Stage>(scenario.live_attaches_first);
    scenario.prepare(*stage_);
    log_->count = 0;
    return spawn([&] {
      Rank rank;
      if (!scenario.before(*stage_, rank)) return 1;
      step_log = &*log_;
      act_at = at;
      act_signal = signal;
      step_hook = count_step;
      const bool ok = scenario.act(*stage_, rank);
      step_hook = nullptr;
      return ok ? 0 : 2;
    });
  }

  unsigned dry_run(const Scenario &scenario) {
    const pid_t child = start(scenario, -1, 0);
    EXPECT_TRUE(exited_with(wait_for(child), 0)) << scenario.name << " does not even work undisturbed";
    return log_->count;
  }

  void expect_books_balance() {
    Snapshot snapshot;
    const Error error = Snapshot::read(stage_->path().c_str(), Trust::root_or_self, Detail::memory, &snapshot);
    ASSERT_FALSE(error) << error.text;
    EXPECT_TRUE(snapshot.device(0).ranks_add_up);
    EXPECT_LE(snapshot.device(0).memory_used, kLimit);
  }

  void expect_a_new_rank_attaches() {
    Rank fresh;
    const Error error = Rank::attach(stage_->region, &fresh);
    EXPECT_FALSE(error) << error.text;
  }

  std::unique_ptr<Stage> stage_;
  Shared<StepLog> log_;
};

TEST_P(CrashTest, KilledAtEveryStep) {
  const unsigned events = dry_run(GetParam());
  ASSERT_GT(events, 0u);
  for (unsigned at = 0; at < events; ++at) {
    const pid_t child = start(GetParam(), at, SIGKILL);
    const bool reap = at % 2 == 0;  // an unreaped zombie is as dead as a reaped one
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    SCOPED_TRACE(testing::Message() << "killed behind step " << at << ", " << step_name(log_->steps[at]));
    ASSERT_EQ(info.si_code, CLD_KILLED) << "exit status " << info.si_status;
    if (reap) wait_for(child);

    expect_books_balance();
    GetParam().after(*stage_);
    if (!GetParam().live_attaches_first) stage_->attach_live_rank();
    LimitChange change;  // whatever limit the dead administrator left half-set is set again
    change.memory_limit = kLimit;
    ASSERT_FALSE(change_limits(stage_->path().c_str(), Trust::root_or_self, change));
    const Stopwatch watch;
    EXPECT_EQ(reserve(stage_->live, 0, Kind::other, kLimit - stage_->held_by_living), Grant::granted)
        << stage_->region.memory_used(0) << " bytes are still counted";
    EXPECT_QUICK(watch);
    EXPECT_EQ(reserve(stage_->live, 0, Kind::other, 1), Grant::refused);
    expect_a_new_rank_attaches();
    expect_books_balance();
    stage_->live.release(0, Kind::other, kLimit - stage_->held_by_living);
    EXPECT_EQ(stage_->region.memory_used(0), stage_->held_by_living);
    if (!reap) wait_for(child);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CrashTest, StoppedAtEveryStep) {
  const unsigned events = dry_run(GetParam());
  ASSERT_GT(events, 0u);
  for (unsigned at = 0; at < events; ++at) {
    const pid_t child = start(GetParam(), at, SIGSTOP);
    const int status = wait_for(child, WUNTRACED);
    SCOPED_TRACE(testing::Message() << "stopped behind step " << at << ", " << step_name(log_->steps[at]));
    ASSERT_TRUE(WIFSTOPPED(status)) << status;

    expect_books_balance();
    if (!GetParam().live_attaches_first) stage_->attach_live_rank();
    const Stopwatch watch;
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(reserve(stage_->live, 0, Kind::other, kUnitBytes), Grant::granted);
      stage_->live.release(0, Kind::other, kUnitBytes);
    }
    EXPECT_QUICK(watch) << "nobody waits for a stopped process";
    expect_a_new_rank_attaches();
    expect_books_balance();

    kill(-child, SIGCONT);
    EXPECT_TRUE(exited_with(wait_for(child), 0)) << "it finishes as if nothing had happened";
    expect_books_balance();
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, CrashTest, ::testing::ValuesIn(scenarios()),
                         [](const auto &info) { return std::string(info.param.name); });

class CoverageTest : public CrashTest {};

TEST_F(CoverageTest, EveryStepFiresInSomeScenario) {
  std::set<Step> seen;
  for (const Scenario &scenario : scenarios()) {
    const unsigned events = dry_run(scenario);
    seen.insert(log_->steps, log_->steps + events);
  }
  for (int step = 0; step < static_cast<int>(Step::count); ++step) {
    EXPECT_EQ(seen.count(static_cast<Step>(step)), 1u) << step_name(static_cast<Step>(step)) << " never fired";
  }
}

// ---- two that need their own choreography ---------------------------------------------------------------------------

// A rank reads the limit an administrator is about to leave behind; that one dies at any step; the next one lowers the
// limit. When the rank goes on, it must not get by under the limit it read.
TEST(LimitTest, NoStaleLimitSurvivesADeadAdministrator) {
  for (unsigned at = 0;; ++at) {
    Stage stage(true);
    Shared<StepLog> log;
    const pid_t first = spawn([&] {
      step_log = &*log;
      act_at = at;
      act_signal = SIGKILL;
      step_hook = count_step;
      return set_limit_as_root(stage, kLimit / 2) ? 0 : 1;
    });
    const bool finished = exited_with(wait_for(first), 0);

    const pid_t rank_process = spawn([&] {
      Rank rank;
      if (Rank::attach(stage.region, &rank)) return 3;
      step_hook = [](Step step) {
        if (step != Step::commit_read_limit) return;
        step_hook = nullptr;
        raise(SIGSTOP);
      };
      return reserve(rank, 0, Kind::data, kLimit / 2) == Grant::granted ? 1 : 0;
    });
    ASSERT_TRUE(WIFSTOPPED(wait_for(rank_process, WUNTRACED)));
    ASSERT_TRUE(set_limit_as_root(stage, kLimit / 4));
    kill(rank_process, SIGCONT);
    EXPECT_TRUE(exited_with(wait_for(rank_process), 0)) << "got by under a stale limit; first died at step " << at;
    if (finished) break;
    ASSERT_LT(at, 100u);
  }
}

// A child forked in the instant between open and close of attach inherits the descriptor and with it the token.
TEST(TokenTest, AForkedChildWithADeadRanksTokenDelaysButDoesNotPreventItsReclaim) {
  Stage stage(true);
  Shared<pid_t> heir;
  const pid_t rank_process = spawn([&] {
    static pid_t *heir_pid = &*heir;
    step_hook = [](Step step) {
      if (step != Step::attach_token_taken) return;
      const pid_t forked = fork();
      while (forked == 0) pause();
      *heir_pid = forked;
    };
    Rank rank;
    if (Rank::attach(stage.region, &rank)) return 1;
    step_hook = nullptr;
    if (!granted(reserve(rank, 0, Kind::data, kLimit))) return 2;
    raise(SIGKILL);
    return 3;
  });
  wait_for(rank_process);
  EXPECT_EQ(reserve(stage.live, 0, Kind::data, kMiB), Grant::refused) << "somebody holds its token";
  sleep_ms(kGraceMs + 100);
  EXPECT_EQ(reserve(stage.live, 0, Kind::data, kLimit), Grant::granted);
  kill(*heir, SIGKILL);
}

}  // namespace
}  // namespace vgpu::test
