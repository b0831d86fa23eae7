// A simulated node with several equal devices, jobs on it, and the true time that their ranks had a device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../scratch.h"
#include "../worker.h"
#include "region/region.h"
#include "work.h"

namespace bench {

class SmNode {
 public:
  static constexpr unsigned kLanes = 4;  // so many scenarios at a time, each on a device of its own
  static const std::vector<unsigned> kLagsMs;

  SmNode();

  // A device whose NVML is so late.
  static unsigned device(unsigned lane, unsigned lag_ms);
  static std::string uuid(unsigned device);
  const std::string &directory() const { return scratch_.path(); }
  // How long each process has had each device, and when that was so.
  struct Busy {
    unsigned device;
    pid_t pid;
    std::uint64_t ns;
    std::uint64_t at_ns;
  };
  static std::vector<Busy> busy();

 private:
  ScratchDirectory scratch_;
};

// The ranks of one job, with a limit (below 100) or without the library.
class SmJob {
 public:
  SmJob(const SmNode &node, unsigned device, unsigned percent, unsigned ranks, const SmProgram &program,
        std::uint64_t until_ns);
  ~SmJob();
  SmJob(const SmJob &) = delete;
  SmJob &operator=(const SmJob &) = delete;

  // Percent of the device that the job had between two looks. As of when each look was, not of when it was asked for.
  double share(const std::vector<SmNode::Busy> &before, const std::vector<SmNode::Busy> &after) const;
  // All ranks are there still, or it says which is not.
  void check_ranks() const;
  void signal(unsigned rank, int number);
  // The rank that looks at NVML; -1: none yet.
  int leader() const;
  void set_percent(unsigned percent);

 private:
  const SmNode &node_;
  std::string name_;  // of the region; empty: none
  std::vector<Worker> ranks_;
};

std::map<std::string, std::string> limited_environment(const std::string &region);

}  // namespace bench
