// A directory that is there as long as the benchmark runs, in memory where the machine has /dev/shm. A process of its
// own removes it, also when the benchmark is interrupted or killed.
#pragma once

#include <sys/types.h>

#include <string>

namespace bench {

class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();  // after all children have ended
  ScratchDirectory(const ScratchDirectory &) = delete;
  ScratchDirectory &operator=(const ScratchDirectory &) = delete;

  const std::string &path() const { return path_; }

 private:
  std::string path_;
  pid_t cleaner_ = 0;
  int guard_ = -1;  // the cleaner waits for its end of this pipe
};

}  // namespace bench
