#include "habits.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "../figure.h"
#include "../statistics.h"
#include "work.h"

namespace bench {

namespace {

constexpr unsigned kLag = 170;

// One rank for each limit, at the same time, on a device of its own. What they printed.
std::vector<double> results(const SmNode &node, const std::vector<Limit> &limits, const std::string &work,
                            std::uint64_t number) {
  std::vector<std::unique_ptr<SmJob>> jobs;
  for (unsigned lane = 0; lane < limits.size(); ++lane) {
    const unsigned device = SmNode::device(lane, kLag);
    jobs.push_back(std::make_unique<SmJob>(node, device, limits[lane], 1, placed({work}, device, number)));
  }
  std::vector<double> printed;
  for (const std::unique_ptr<SmJob> &job : jobs) printed.push_back(job->result());
  return printed;
}

// Of several rounds, one by one.
template <class Take>
std::vector<double> medians(unsigned rounds, Take take) {
  std::vector<std::vector<double>> columns;
  for (unsigned round = 0; round < rounds; ++round) {
    const std::vector<double> row = take();
    columns.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) columns[i].push_back(row[i]);
  }
  std::vector<double> result;
  for (const std::vector<double> &column : columns) result.push_back(median(column));
  return result;
}

std::vector<Limit> ours_peer_none(unsigned cap) { return {{Limiter::ours, cap}, {Limiter::peer, cap}, {}}; }

struct Held {
  std::vector<double> mean;  // percent of the device that each job had
  double worst_second;       // of the first of them: the most in any second
};

Held hold(const Session &session, const SmNode &node, const std::vector<Limit> &limits,
          const std::vector<std::string> &program, std::uint64_t measure, const JobExtras &extras = {}) {
  const std::uint64_t skip = kStart + session.time(kSecond);
  measure = session.time(measure);
  const std::uint64_t end = now_ns() + skip + measure + kRest;
  std::vector<std::unique_ptr<SmJob>> jobs;
  for (unsigned lane = 0; lane < limits.size(); ++lane) {
    const unsigned device = SmNode::device(lane, kLag);
    jobs.push_back(std::make_unique<SmJob>(node, device, limits[lane], 1, placed(program, device, end), extras));
  }
  wait_until(now_ns() + skip);
  const std::uint64_t start = now_ns();
  const std::vector<SmNode::Busy> first = node.busy();
  std::vector<SmNode::Busy> last = first;
  Held held{};
  for (std::uint64_t passed = 0; passed < measure;) {
    passed = std::min(passed + kSecond, measure);
    wait_until(start + passed);
    const std::vector<SmNode::Busy> now = node.busy();
    held.worst_second = std::max(held.worst_second, jobs.front()->share(last, now));
    last = now;
  }
  for (const std::unique_ptr<SmJob> &job : jobs) {
    job->check_ranks();
    held.mean.push_back(job->share(first, last));
  }
  return held;
}

// What starts a program in a PID namespace of its own. Empty: that is not permitted.
std::vector<std::string> pid_namespace() {
  std::vector<std::string> launcher = {"unshare", "--pid", "--fork", "--kill-child"};
  if (getuid() != 0) launcher.insert(launcher.end(), {"--user", "--map-current-user"});
  std::string command;
  for (const std::string &word : launcher) command += word + " ";
  if (std::system((command + "true 2>/dev/null").c_str()) != 0) launcher.clear();
  return launcher;
}

void tell(const Session &session, const char *what, const char *unit, double none, double peer, double ours) {
  std::printf("%s: %.4g without a limit, %.4g by blocks, %.4g ours, %s\n", what, none, peer, ours, unit);
  session.row("habit", {what, unit, text(none, 2), text(peer, 2), text(ours, 2)});
}

}  // namespace

void measure_capture(const Session &session) {
  const SmNode node("hardware");
  const std::vector<double> longest = session.calmly("captures", [&] {
    return medians(session.rounds(3),
                   [&] { return results(node, ours_peer_none(50), "capture", session.time(1500 * kMillisecond)); });
  });
  tell(session, "longest launch of a new kernel of 1 ms beside a capture, cap 50", "ms", longest[2], longest[1],
       longest[0]);
  print_figure("sm.capture_wait_ms", longest[0], "ms", 60);
}

void measure_lazy(const Session &session) {
  const SmNode node("hardware", "function_time=20ms");
  const unsigned count = session.brief() ? 4 : 40;
  // One after the other: loading keeps a core busy.
  const std::vector<double> ms = session.calmly("lazy loading", [&] {
    return medians(session.rounds(3), [&] {
      std::vector<double> all;
      for (const Limit limit : {Limit{}, Limit{Limiter::peer, 50}, Limit{Limiter::ours, 50}}) {
        all.push_back(results(node, {limit}, "lazy", count)[0]);
      }
      return all;
    });
  });
  tell(session, "40 kernels of 1 ms that take 20 ms to load, launched once each, cap 50", "ms", ms[0], ms[1], ms[2]);
  print_figure("sm.lazy_ratio", ms[2] / ms[0], "x", 1.3);
}

void measure_shapes(const Session &session) {
  constexpr unsigned kCap = 30;
  const SmNode node("hardware", "kernel_time=2us+10us/wave");
  const std::vector<double> got = session.calmly("shapes", [&] {
    Held held = hold(session, node, ours_peer_none(kCap), {"shapes"}, 10 * kSecond);
    held.mean.push_back(held.worst_second);
    return held.mean;
  });
  tell(session, "a kernel of 1 to 20,000 blocks, cap 30", "% of the device", got[2], got[1], got[0]);
  std::printf("in its worst second ours had %.2f\n", got[3]);
  print_figure("sm.shapes_overshoot_points", got[0] - kCap, "points", 2);
}

void measure_foreign_pids(const Session &session) {
  constexpr unsigned kCap = 20;
  struct {
    const char *what, *manner;
    std::vector<std::string> launcher;
  } const cases[] = {
      {"kernels of 2 ms, NVML's utilisation in PIDs that nobody has, cap 20", "nvml_pids=foreign", {}},
      // What a container sees: processes have PIDs of their own, and the utilisation speaks of the host's.
      {"kernels of 2 ms in a PID namespace, NVML's utilisation in the host's PIDs, cap 20", "nvml_pids=mixed",
       pid_namespace()}};
  double most = 0;
  for (const auto &one : cases) {
    if (&one != cases && one.launcher.empty()) {
      std::printf("left out, because it is not permitted here: %s\n", one.what);
      continue;
    }
    const SmNode node("hardware", one.manner);
    const std::vector<double> got = session.calmly(one.what, [&] {
      return hold(session, node, ours_peer_none(kCap), SmProgram{"2ms", "busy", 80}.arguments(), 10 * kSecond,
                  {{}, one.launcher})
          .mean;
    });
    tell(session, one.what, "% of the device", got[2], got[1], got[0]);
    most = std::max(most, got[0]);
  }
  print_figure("sm.foreign_pids_overshoot_points", most - kCap, "points", 2);
}

void measure_without_nvml(const Session &session) {
  const SmNode node("hardware",
                    "nvml_unsupported=nvmlDeviceGetProcessUtilization,nvmlDeviceGetProcessesUtilizationInfo,"
                    "nvmlDeviceGetUtilizationRates,nvmlDeviceGetSamples");
  const std::vector<double> got = session.calmly("no utilisation", [&] {
    // Kernels of ten blocks: they run beside each other.
    return hold(session, node, {{Limiter::ours, 50}, {Limiter::peer, 50}, {}, {Limiter::ours, 80}},
                SmProgram{"200us", "streams", 1}.arguments(), 5 * kSecond)
        .mean;
  });
  tell(session, "four streams of 200 us, NVML tells no utilisation, cap 50", "% of the device", got[2], got[1], got[0]);
  std::printf("with a cap of 80: %.2f\n", got[3]);
  print_figure("sm.no_nvml_error_points", std::fabs(got[0] - 50), "points", 5);
}

void measure_autotune(const Session &session) {
  const SmNode node("hardware");
  double worst = 0;
  for (const char *form : {"pairs", "chain"}) {
    const std::vector<double> ms = session.calmly(std::string("timing by events, ") + form, [&] {
      return medians(session.rounds(3),
                     [&] { return results(node, ours_peer_none(50), form, session.brief() ? 10 : 100); });
    });
    tell(session,
         form[0] == 'p' ? "median of 100 pairs of events around a kernel of 1 ms, cap 50"
                        : "median of 100 kernels of 1 ms with one event between two, cap 50",
         "ms", ms[2], ms[1], ms[0]);
    worst = std::max(worst, 100 * std::fabs(ms[0] / ms[2] - 1));
  }
  print_figure("sm.autotune_error_percent", worst, "%", 10);
}

}  // namespace bench
