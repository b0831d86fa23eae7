// The ranks of one job on a simulated node: without a limit, held to one by libvgpu, or by a limiter of another kind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../worker.h"
#include "node.h"

namespace bench {

enum class Limiter { none, ours, peer };

struct Limit {
  Limiter limiter = Limiter::none;
  unsigned percent = 100;
};

// What its processes are given besides.
struct JobExtras {
  std::map<std::string, std::string> environment = {};
  std::vector<std::string> launcher = {};
};

class SmJob {
 public:
  SmJob(const SmNode &node, unsigned device, Limit limit, unsigned ranks, const std::vector<std::string> &work,
        const JobExtras &extras = {});
  ~SmJob();
  SmJob(const SmJob &) = delete;
  SmJob &operator=(const SmJob &) = delete;

  // Percent of the device that the job had between two looks. As of when each look was, not of when it was asked for.
  double share(const std::vector<SmNode::Busy> &before, const std::vector<SmNode::Busy> &after) const;
  // All ranks are there still, or it says which is not.
  void check_ranks() const;
  // Waits for the end of the first rank; the number that it printed.
  double result() { return ranks_.front().result(); }
  void signal(unsigned rank, int number);
  // The rank that looks at NVML; -1: none yet.
  int leader() const;
  void set_percent(unsigned percent);

 private:
  void make_region(unsigned device, unsigned percent);
  std::string directory() const { return node_.directory() + "/" + name_; }

  const SmNode &node_;
  unsigned device_;
  bool launched_;     // by another program, so that its processes have other PIDs than what was started
  std::string name_;  // of the region; empty: none
  std::vector<Worker> ranks_;
};

}  // namespace bench
