// A process of this very program that does some work, with libvgpu or without.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace bench {

// Started as `PROGRAM work ARGUMENT...`, perhaps by a launcher. Killed if nobody asked for its result.
class Worker {
 public:
  Worker(const std::vector<std::string> &arguments, const std::map<std::string, std::string> &environment,
         const std::vector<std::string> &launcher = {});
  Worker(Worker &&other) noexcept;
  Worker &operator=(Worker &&) = delete;
  ~Worker();

  pid_t pid() const { return pid_; }
  // Waits for its end; the number it printed.
  double result();

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

}  // namespace bench
