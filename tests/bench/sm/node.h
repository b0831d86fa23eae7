// A simulated node with several equal devices, and the true time that processes had each of them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../scratch.h"

namespace bench {

class SmNode {
 public:
  static constexpr unsigned kLanes = 4;  // so many scenarios at a time, each on a device of its own
  static const std::vector<unsigned> kLagsMs;

  // `profile`: ideal or hardware; `more`: further lines of the node's description, with ';' between them.
  explicit SmNode(const std::string &profile, const std::string &more = "", unsigned lanes = kLanes);

  // A device whose NVML is so late.
  static unsigned device(unsigned lane, unsigned lag_ms);
  static std::string uuid(unsigned device);
  const std::string &directory() const { return scratch_.path(); }
  // What puts a process on this node.
  const std::map<std::string, std::string> &environment() const { return environment_; }
  // How long each process has had each device, and when that was so.
  struct Busy {
    unsigned device;
    pid_t pid;
    std::uint64_t ns;
    std::uint64_t at_ns;
  };
  std::vector<Busy> busy() const;

 private:
  ScratchDirectory scratch_;
  std::map<std::string, std::string> environment_;
};

}  // namespace bench
