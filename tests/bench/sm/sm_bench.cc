// The SM limiter on the simulated GPU, in real time. What a job achieved is the time that the simulated device gave it.
//
//   sm_bench [--brief]             all figures, and sm.tsv for the documentation
//   sm_bench [--brief] PART...     only these; see below
//   sm_bench CAP KERNELS RANKS KIND LAG_MS [hardware]     one combination
//
// --brief: just shows that every part works.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../failure.h"
#include "../figure.h"
#include "../statistics.h"
#include "combinations.h"
#include "habits.h"
#include "work.h"

namespace bench {

namespace {

constexpr unsigned kLag = 170;

// Two jobs on one device, when each has found out what its launches cost among the other's.
void measure_split(const Session &session) {
  const SmNode node("ideal");
  const std::uint64_t skip = kStart + session.time(4 * kSecond), measure = session.time(5 * kSecond);
  double worst = 0;
  for (const char *kernels : {"200us", "2ms"}) {
    const std::vector<double> got = session.calmly(std::string("two jobs of ") + kernels, [&] {
      const unsigned device = SmNode::device(0, kLag);
      const std::vector<std::string> work =
          placed(SmProgram{kernels, "busy"}.arguments(), device, now_ns() + skip + measure + kRest);
      const SmJob small(node, device, {Limiter::ours, 30}, 1, work), large(node, device, {Limiter::ours, 70}, 2, work);
      return shares(node, {&small, &large}, skip, measure);
    });
    std::printf("two jobs of %s kernels, 30 and 70: %.2f and %.2f\n", kernels, got[0], got[1]);
    worst = std::max({worst, std::fabs(got[0] - 30), std::fabs(got[1] - 70)});
  }
  print_figure("sm.split_error_points", worst, "points", 2);
}

// What becomes of the others' share when the elected rank is stopped, or killed.
void measure_leader_loss(const Session &session) {
  const SmNode node("ideal");
  double worst = 0;
  for (const int number : {SIGSTOP, SIGKILL}) {
    const char *name = number == SIGSTOP ? "SIGSTOP" : "SIGKILL";
    const double got = session.calmly(name, [&] {
      const unsigned device = SmNode::device(0, kLag);
      SmJob job(node, device, {Limiter::ours, 50}, 4,
                placed(SmProgram{"2ms", "busy"}.arguments(), device, now_ns() + 30 * kSecond));
      wait_until(now_ns() + kStart + session.time(2 * kSecond));
      const std::uint64_t deadline = now_ns() + 20 * kSecond;
      while (job.leader() < 0 && now_ns() < deadline) sleep_ns(20 * kMillisecond);
      const int leader = job.leader();
      if (leader < 0) throw Failure("no rank was elected");
      job.signal(static_cast<unsigned>(leader), number);
      // What it had queued is done first, or dropped.
      std::vector<double> share = shares(node, {&job}, kSecond, session.time(3 * kSecond));
      const int next = job.leader();
      std::printf("after %s of the elected rank (%d, then %d) the others have %.2f of 50\n", name, leader, next,
                  share[0]);
      if (next == leader) throw Failure("it was not replaced");
      return share;
    })[0];
    worst = std::max(worst, std::fabs(got - 50));
  }
  print_figure("sm.leader_loss_points", worst, "points", 5);
}

double printed(const SmNode &node, Limit limit, const std::vector<std::string> &work, bool one_device = false) {
  JobExtras extras;
  if (one_device) extras.environment["CUDA_VISIBLE_DEVICES"] = SmNode::uuid(0);
  return SmJob(node, 0, limit, 1, work, extras).result();
}

// A core that shares its units with another is at times half as fast, for seconds, whatever it runs. So: the fastest of
// several rounds of each, in turns.
void measure_launch_cost(const Session &session) {
  const SmNode ideal("ideal"), hardware("hardware");
  constexpr Limit kLimit = {Limiter::ours, 90}, kNoLimit = {Limiter::ours, 100};
  const std::vector<std::string> launches = {"launches", "0us"}, short_kernels = {"launches", "2us"};
  Fastest native, limited, native_of_many, limited_of_many, unlimited, native_hardware, limited_hardware;
  for (unsigned round = 0; round < session.rounds(9); ++round) {
    native.add(printed(ideal, {}, launches, true));
    limited.add(printed(ideal, kLimit, launches, true));
    native_of_many.add(printed(ideal, {}, launches));
    limited_of_many.add(printed(ideal, kLimit, launches));
    unlimited.add(printed(ideal, kNoLimit, launches));
    if (round % 3 != 0) continue;
    native_hardware.add(printed(hardware, {}, short_kernels, true));
    limited_hardware.add(printed(hardware, kLimit, short_kernels, true));
  }
  std::printf("a launch takes %.1f ns\n", native.value());
  print_figure("sm.launch_added_ns", limited.value() - native.value(), "ns", 6);
  print_figure("sm.launch_added_of_many_ns", limited_of_many.value() - native_of_many.value(), "ns", 13);
  std::printf("without a limit, in a program linked with the driver: %.1f ns more\n",
              unlimited.value() - native_of_many.value());
  std::printf("on a device like hardware a launch of 2 us takes %.2f us, with a limit of 90 %.2f us\n",
              native_hardware.value() / 1000, limited_hardware.value() / 1000);
}

void measure_throttled_cpu(const Session &session) {
  const std::string until = std::to_string(now_ns() + session.time(4 * kSecond));
  print_figure("sm.throttled_cpu_percent", printed(SmNode("ideal"), {Limiter::ours, 10}, {"cpu", until}), "%", 1);
}

// For the plot: a job whose limit is changed twice while it runs.
void measure_over_time(const Session &session) {
  constexpr std::uint64_t kStep = 100 * kMillisecond;
  const SmNode node("ideal");
  const unsigned device = SmNode::device(0, kLag), third = session.brief() ? 2 : 30;
  SmJob job(node, device, {Limiter::ours, 50}, 2,
            placed(SmProgram{"2ms", "busy"}.arguments(), device, now_ns() + kStart + 10 * kSecond + kRest));
  const std::uint64_t start = now_ns();
  std::vector<SmNode::Busy> before;
  unsigned percent = 50;
  for (unsigned step = 1; step <= 3 * third; ++step) {
    if (step == third + 1) job.set_percent(percent = 20);
    if (step == 2 * third + 1) job.set_percent(percent = 80);
    wait_until(start + step * kStep);
    const double now = 1e-9 * static_cast<double>(now_ns() - start);
    const std::vector<SmNode::Busy> after = node.busy();
    session.row("time", {text(now, 2), text(job.share(before, after), 2), std::to_string(percent)});
    before = after;
  }
}

const struct {
  const char *name;
  void (*measure)(const Session &);
} kParts[] = {{"combinations", measure_combinations},
              {"peers", measure_peers},
              {"capture", measure_capture},
              {"lazy", measure_lazy},
              {"shapes", measure_shapes},
              {"foreign", measure_foreign_pids},
              {"no-nvml", measure_without_nvml},
              {"autotune", measure_autotune},
              {"split", measure_split},
              {"leader", measure_leader_loss},
              {"launch", measure_launch_cost},
              {"cpu", measure_throttled_cpu},
              {"time", measure_over_time}};

void run_part(const Session &session, const std::string &name) {
  for (const auto &part : kParts) {
    if (name != part.name) continue;
    const std::uint64_t start = now_ns();
    part.measure(session);
    std::printf("%s took %.0f s\n", part.name, 1e-9 * static_cast<double>(now_ns() - start));
    std::fflush(stdout);
    return;
  }
  throw Failure("no such part: %s", name.c_str());
}

void run_all(bool brief) {
  const std::unique_ptr<FILE, int (*)(FILE *)> table(std::fopen("sm.tsv", "w"), std::fclose);
  if (!table) throw Failure("sm.tsv cannot be written");
  const Session session(brief, table.get());
  for (const auto &part : kParts) run_part(session, part.name);
}

void run_combination(const std::vector<std::string> &arguments) {
  const Combination one = {static_cast<unsigned>(std::stoul(arguments[0])),
                           {arguments[1], arguments[3]},
                           static_cast<unsigned>(std::stoul(arguments[2])),
                           static_cast<unsigned>(std::stoul(arguments[4]))};
  const Outcome outcome = run_one(Session(false, nullptr), one, arguments.size() > 5 ? arguments[5] : "ideal");
  std::printf("without a limit %.1f, with it %.2f: overshoot %.2f, efficiency %.1f\n", outcome.free, outcome.capped,
              outcome.overshoot(one), outcome.efficiency(one));
}

}  // namespace

}  // namespace bench

int main(int argc, char **argv) {
  using namespace bench;
  if (argc > 2 && std::strcmp(argv[1], "work") == 0) return sm_work({argv + 2, argv + argc});
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool brief = !arguments.empty() && arguments.front() == "--brief";
  if (brief) arguments.erase(arguments.begin());
  return bench::run("sm_bench", [&] {
    if (arguments.empty()) return run_all(brief);
    if (arguments.size() >= 5 && std::isdigit(static_cast<unsigned char>(arguments.front().front())) != 0) {
      return run_combination(arguments);
    }
    const Session session(brief, nullptr);
    for (const std::string &part : arguments) run_part(session, part);
  });
}
