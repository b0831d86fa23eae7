// Forked children that never outlive what they were forked for.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

namespace bench {

class Group {
 public:
  using Body = std::function<void(unsigned index)>;

  Group() = default;
  Group(unsigned processes, const Body &body);
  ~Group();  // kills and reaps whoever is left
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;

  // The child runs body(index) and exits. The kernel kills it when the parent dies.
  pid_t spawn(const Body &body);
  pid_t pid(unsigned index) const { return pids_[index]; }

  void signal_all(int signal) const;
  // Until all have ended but none is reaped yet: what others see of processes whose parent is slow.
  void wait_for_zombies() const;
  // Reaps everybody; a child that did not end well is a Failure.
  void join();
  // Ends one child whatever it is doing, and reaps it.
  void kill(unsigned index);

 private:
  std::vector<pid_t> pids_;  // 0: reaped
};

}  // namespace bench
