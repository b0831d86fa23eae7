// How sm_bench measures: for how long, what a job had of a device meanwhile, and what to do on a machine that is busy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "../clock.h"
#include "job.h"

namespace bench {

// What every part is given.
class Session {
 public:
  // `brief`: every part just shows that it works; its figures mean nothing. `table`: for the documentation, or null.
  Session(bool brief, FILE *table) : brief_(brief), table_(table) {}

  bool brief() const { return brief_; }
  std::uint64_t time(std::uint64_t ns) const { return brief_ ? std::min(ns, 200 * kMillisecond) : ns; }
  unsigned rounds(unsigned count) const { return brief_ ? 1 : count; }
  // A line of the table, with tabs between its cells.
  void row(const char *kind, const std::vector<std::string> &cells) const;

  // Takes some values, and takes them once more if the machine was overloaded meanwhile, when it no longer is or that
  // took too long. Both are printed, the second count.
  template <class Take>
  std::vector<double> calmly(const std::string &what, Take take) const {
    Load load;
    std::vector<double> values = take();
    const double tasks = load.mean();
    if (brief_ || tasks <= Load::most()) return values;
    wait_for_calm();
    Load load_again;
    const std::vector<double> again = take();
    tell_both(what, values, tasks, again, load_again.mean());
    return again;
  }

 private:
  // How many tasks wanted to run at a time, on the whole machine, since this was made.
  class Load {
   public:
    Load();
    ~Load();
    Load(const Load &) = delete;
    Load &operator=(const Load &) = delete;
    double mean();
    static double most();  // with more the machine is overloaded

   private:
    struct Watch;
    std::unique_ptr<Watch> watch_;
  };
  void wait_for_calm() const;
  void tell_both(const std::string &what, const std::vector<double> &first, double tasks,
                 const std::vector<double> &second, double tasks_then) const;

  bool brief_;
  FILE *table_;
  mutable std::uint64_t patience_ = 60 * kSecond;  // for the machine to calm down, of all parts together
};

inline constexpr std::uint64_t kStart = 300 * kMillisecond;  // until all ranks have their contexts
// How much longer programs would run than they are measured: more than it takes a busy machine to read the device. They
// are killed before.
inline constexpr std::uint64_t kRest = 20 * kSecond;

std::string text(double value, int digits);
void wait_until(std::uint64_t instant);
// Percent of its device that each job has between now + `skip` and `measure` later. All of them are on this node.
std::vector<double> shares(const SmNode &node, const std::vector<const SmJob *> &jobs, std::uint64_t skip,
                           std::uint64_t measure);

}  // namespace bench
