#include "combinations.h"

#include <algorithm>

#include "../figure.h"
#include "pairwise.h"

namespace bench {

namespace {

struct Profile {
  const char *name;
  const char *overshoot, *efficiency;  // figures
  double least_efficiency;             // their goals
};
const Profile kProfiles[] = {{"ideal", "sm.overshoot_max_points", "sm.efficiency_min_percent", 95},
                             {"hardware", "sm.hardware_overshoot_points", "sm.hardware_efficiency_percent", 93}};
constexpr double kMostOvershoot = 2;

std::vector<Combination> the_forty() {
  const unsigned caps[] = {10, 20, 50, 80, 90}, ranks[] = {1, 2, 4, 8};
  const char *kernels[] = {"20us", "200us", "2ms", "20ms", "mix"}, *kinds[] = {"busy", "bursty", "streams", "graphs"};
  std::vector<Combination> all;
  for (const std::vector<unsigned> &row : pairwise({5, 5, 4, 4, 3}, 40)) {
    all.push_back({caps[row[0]], {kernels[row[1]], kinds[row[3]]}, ranks[row[2]], SmNode::kLagsMs[row[4]]});
  }
  return all;
}

std::vector<Outcome> outcomes(const Session &session, const SmNode &node, const std::vector<Combination> &group) {
  std::vector<Outcome> result(group.size());
  const std::vector<double> free = run_together(session, node, group, Limiter::none, kFree),
                            capped = run_together(session, node, group, Limiter::ours, kLimited);
  for (std::size_t i = 0; i < group.size(); ++i) result[i] = {free[i], capped[i]};
  return result;
}

// What both limiters are compared by. Blocks are in proportion to time, as one that charges by blocks has to hope, but
// for the kernels of one block.
std::vector<Combination> compared() {
  constexpr unsigned kWave = 80;  // a block for each SM
  const unsigned lag = SmNode::kLagsMs.front();
  return {{50, {"20us", "busy", kWave}, 1, lag},
          {50, {"2ms", "busy", kWave}, 1, lag},
          {20, {"mix", "busy", kWave}, 1, lag},
          {80, {"200us", "streams", kWave}, 1, lag},
          {50, {"2ms", "sync", kWave}, 1, lag},
          {50, {"2ms", "busy", kWave}, 4, lag},
          {50, {"2ms", "graphs", kWave}, 1, lag},
          {20, {"200us", "bursty", kWave}, 1, lag},
          {50, {"2ms", "busy"}, 1, lag},
          {10, {"2ms", "busy", kWave}, 1, lag},
          {90, {"2ms", "busy", kWave}, 1, lag, true}};
}

std::string description(const std::vector<Combination> &all, std::size_t index) {
  const SmProgram &program = all[index].program;
  std::string text = program.kernels + " " + program.kind;
  if (program.blocks_per_20us == 0) text += ", one block";
  const auto shares_with = [&](std::size_t other) {
    return other < all.size() && all[std::max(index, other)].beside ? ", beside " + std::to_string(all[other].cap) : "";
  };
  return text + shares_with(index - 1) + shares_with(index + 1);
}

}  // namespace

double Outcome::efficiency(const Combination &of) const { return 100 * capped / std::min<double>(of.cap, free); }

std::vector<double> run_together(const Session &session, const SmNode &node, const std::vector<Combination> &all,
                                 Limiter limiter, Window window) {
  const std::uint64_t skip = kStart + session.time(window.warm_up), measure = session.time(window.measure);
  const std::uint64_t end = now_ns() + skip + measure + kRest;
  std::vector<std::unique_ptr<SmJob>> jobs;
  std::vector<const SmJob *> pointers;
  unsigned lane = 0;
  for (const Combination &one : all) {
    if (!one.beside && !jobs.empty()) ++lane;
    const unsigned device = SmNode::device(lane, one.lag_ms);
    jobs.push_back(std::make_unique<SmJob>(node, device, Limit{limiter, one.cap}, one.ranks,
                                           placed(one.program.arguments(), device, end)));
    pointers.push_back(jobs.back().get());
  }
  const std::vector<double> got = shares(node, pointers, skip, measure);
  for (const SmJob *job : pointers) job->check_ranks();
  return got;
}

Outcome run_one(const Session &session, const Combination &one, const std::string &profile) {
  return outcomes(session, SmNode(profile), {one})[0];
}

void measure_combinations(const Session &session) {
  const SmNode nodes[] = {SmNode(kProfiles[0].name), SmNode(kProfiles[1].name)};
  std::vector<Combination> all = the_forty();
  if (session.brief()) all.resize(2);
  double overshoot[] = {-100, -100}, efficiency[] = {1000, 1000};
  std::printf("%4s %-6s %-8s %5s %7s  %-8s %9s %9s %10s %11s\n", "cap", "kernel", "program", "ranks", "lag ms",
              "profile", "without", "achieved", "overshoot", "efficiency");
  for (std::size_t from = 0; from < all.size(); from += SmNode::kLanes) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from);
    const std::vector<Combination> group(begin, begin + std::min<std::ptrdiff_t>(SmNode::kLanes, all.end() - begin));
    std::vector<Outcome> results[2];
    for (unsigned profile = 0; profile < 2; ++profile) {
      const std::vector<double> values =
          session.calmly(std::string(kProfiles[profile].name) + ", rows " + std::to_string(from + 1) + " to " +
                             std::to_string(from + group.size()) + ", without limit and achieved",
                         [&] {
                           std::vector<double> flat;
                           for (const Outcome &outcome : outcomes(session, nodes[profile], group)) {
                             flat.insert(flat.end(), {outcome.free, outcome.capped});
                           }
                           return flat;
                         });
      for (std::size_t i = 0; i < group.size(); ++i) results[profile].push_back({values[2 * i], values[2 * i + 1]});
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Combination &one = group[i];
      std::vector<std::string> cells = {std::to_string(one.cap), one.program.kernels, one.program.kind,
                                        std::to_string(one.ranks), std::to_string(one.lag_ms)};
      for (unsigned profile = 0; profile < 2; ++profile) {
        const Outcome &outcome = results[profile][i];
        const double over = outcome.overshoot(one), reached = outcome.efficiency(one);
        std::printf("%4u %-6s %-8s %5u %7u  %-8s %9.1f %9.2f %10.2f %11.1f\n", one.cap, one.program.kernels.c_str(),
                    one.program.kind.c_str(), one.ranks, one.lag_ms, kProfiles[profile].name, outcome.free,
                    outcome.capped, over, reached);
        cells.insert(cells.end(), {text(outcome.free, 1), text(outcome.capped, 2), text(reached, 1)});
        overshoot[profile] = std::max(overshoot[profile], over);
        efficiency[profile] = std::min(efficiency[profile], reached);
      }
      session.row("combination", cells);
    }
    std::fflush(stdout);
  }
  for (unsigned profile = 0; profile < 2; ++profile) {
    print_figure(kProfiles[profile].overshoot, overshoot[profile], "points", kMostOvershoot);
    print_least(kProfiles[profile].efficiency, efficiency[profile], "%", kProfiles[profile].least_efficiency);
  }
}

void measure_peers(const Session &session) {
  constexpr unsigned kTogether = 5;
  constexpr Window kWindow = {2 * kSecond, 3 * kSecond};
  const SmNode nodes[] = {SmNode(kProfiles[0].name, "", kTogether), SmNode(kProfiles[1].name, "", kTogether)};
  std::vector<Combination> all = compared();
  if (session.brief()) all.erase(all.begin(), all.end() - 2);
  std::printf("%4s %-32s %5s  %-8s %9s %9s %9s\n", "cap", "program", "ranks", "profile", "none", "by blocks", "ours");
  for (std::size_t from = 0, to = 0; from < all.size(); from = to) {
    for (unsigned lanes = 0; to < all.size() && (lanes < kTogether || all[to].beside); ++to)
      lanes += all[to].beside ? 0 : 1;
    const auto begin = all.begin();
    const std::vector<Combination> group(begin + static_cast<std::ptrdiff_t>(from),
                                         begin + static_cast<std::ptrdiff_t>(to));
    std::vector<std::vector<double>> columns;  // three for each profile
    for (unsigned profile = 0; profile < 2; ++profile) {
      for (const Limiter limiter : {Limiter::none, Limiter::peer, Limiter::ours}) {
        const Window window = limiter == Limiter::none ? kFree : kWindow;
        const char *name = limiter == Limiter::none   ? "without a limit"
                           : limiter == Limiter::peer ? "by blocks"
                                                      : "libvgpu";
        columns.push_back(
            session.calmly(std::string("side by side, ") + kProfiles[profile].name + ", " + name + ", rows " +
                               std::to_string(from + 1) + " to " + std::to_string(to),
                           [&] { return run_together(session, nodes[profile], group, limiter, window); }));
      }
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Combination &one = group[i];
      const std::string what = description(group, i);
      std::vector<std::string> cells = {std::to_string(one.cap), what, std::to_string(one.ranks)};
      for (const std::vector<double> &column : columns) cells.push_back(text(column[i], 1));
      for (unsigned profile = 0; profile < 2; ++profile) {
        std::printf("%4u %-32s %5u  %-8s %9.1f %9.1f %9.1f\n", one.cap, what.c_str(), one.ranks,
                    kProfiles[profile].name, columns[3 * profile][i], columns[3 * profile + 1][i],
                    columns[3 * profile + 2][i]);
      }
      session.row("side", cells);
    }
    std::fflush(stdout);
  }
}

}  // namespace bench
