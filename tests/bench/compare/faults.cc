// Ranks that are stopped or killed in the middle of an operation. They do nothing but operations, so a signal at a
// random moment mostly lands inside one; several hundred signals find every place worth finding.
#include <sys/wait.h>
#include <csignal>

#include <algorithm>
#include <random>

#include "../pairs.h"
#include "measure.h"

namespace bench {
namespace {

constexpr std::uint64_t kPatience = static_cast<std::uint64_t>(kPatienceMs) * kMillisecond;
constexpr std::uint64_t kLimit = 64 * kPairBytes;
constexpr unsigned kVictimSlot = 0;
constexpr unsigned kSurvivorSlot = 1;

struct Stage {
  Gate ready;    // both ranks attached
  Signal asked;  // counts what the survivor was asked to do
  Signal answered;
  std::uint64_t slowest_ns = 0;  // of the survivor, for the last thing asked
};

[[noreturn]] void work_forever(Scheme &scheme) {
  for (;;) {
    if (scheme.reserve(kPairBytes)) scheme.release(kPairBytes);
  }
}

// The survivor does `act` each time it is asked.
template <class Act>
void serve(Stage &stage, Act act) {
  for (std::uint32_t task = 1;; ++task) {
    if (!stage.asked.wait_for(task, now_ns() + Gate::kPatience)) return;
    stage.slowest_ns = act();
    stage.answered.add_one();
  }
}

// False: it was still at it when our patience ended.
bool ask(Stage &stage, std::uint32_t task) {
  stage.asked.add_one();
  return stage.answered.wait_for(task, now_ns() + kPatience);
}

std::uint64_t time_until_granted(Scheme &scheme, std::uint64_t bytes) {
  const std::uint64_t start = now_ns();
  while (!scheme.reserve(bytes)) {
  }
  const std::uint64_t end = now_ns();
  scheme.release(bytes);
  return end - start;
}

// So that the victim is somewhere else each time.
void let_it_run(std::minstd_rand &random) { sleep_ns(20 * kMicrosecond + random() % (100 * kMicrosecond)); }

void stop_and_wait(pid_t pid) {
  siginfo_t info;
  kill(pid, SIGSTOP);
  waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED);
}

}  // namespace

double measure_stall_ms(const Candidate &candidate) {
  constexpr unsigned kStops = 300;
  constexpr unsigned kPairsPerStop = 20;
  const auto scheme = candidate.make(kLimit);
  Shared<Stage> stage;
  Group victim(1, [&](unsigned) {
    scheme->attach(kVictimSlot);
    stage->ready.pass();
    work_forever(*scheme);
  });
  Group survivor(1, [&](unsigned) {
    scheme->attach(kSurvivorSlot);
    stage->ready.pass();
    serve(*stage, [&] {
      std::uint64_t slowest = 0;
      for (unsigned i = 0; i < kPairsPerStop; ++i) {
        const std::uint64_t start = now_ns();
        time_until_granted(*scheme, kPairBytes);
        slowest = std::max(slowest, now_ns() - start);
      }
      return slowest;
    });
  });
  stage->ready.release(2);

  std::minstd_rand random(1);
  std::uint64_t slowest = 0;
  for (unsigned stop = 1; stop <= kStops; ++stop) {
    let_it_run(random);
    stop_and_wait(victim.pid(0));
    if (!ask(*stage, stop)) return kPatienceMs * 2;
    slowest = std::max(slowest, stage->slowest_ns);
    kill(victim.pid(0), SIGCONT);
  }
  return static_cast<double>(slowest) / kMillisecond;
}

double measure_recovery_ms(const Candidate &candidate) {
  constexpr unsigned kKills = 100;
  const auto scheme = candidate.make(kLimit);
  Shared<Stage> stage;
  Group survivor(1, [&](unsigned) {
    scheme->attach(kSurvivorSlot);
    serve(*stage, [&] { return time_until_granted(*scheme, kLimit); });
  });

  std::minstd_rand random(1);
  std::uint64_t slowest = 0;
  const std::uint64_t started = now_ns();
  for (unsigned task = 1; task <= kKills && now_ns() - started < 2 * kPatience; ++task) {
    Shared<Gate> holding;
    Group victim(1, [&](unsigned) {
      scheme->attach(kVictimSlot);
      if (!scheme->reserve(kLimit / 2)) throw Failure("the victim got nothing to hold");
      holding->pass();
      work_forever(*scheme);
    });
    holding->release(1);
    let_it_run(random);
    victim.kill(0);  // and reaps: how long the kernel takes to end a process is nobody's merit
    if (!ask(*stage, task)) return kPatienceMs * 2;
    slowest = std::max(slowest, stage->slowest_ns);
  }
  return static_cast<double>(slowest) / kMillisecond;
}

}  // namespace bench
