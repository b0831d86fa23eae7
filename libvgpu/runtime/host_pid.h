// What NVML calls this process: getpid(), except in a PID namespace, where it has to be found out.
//
// There the device's processes are listed before the process's first context and again after it, in steps of 20 ms, until
// exactly one is new that is no other rank's. That takes as long as the driver needs to show a process, so the job's ranks
// do it one at a time, under a lock in the region that the kernel drops with its holder. A rank that does not get it in time,
// or does not see itself in time, does without: its number stays unknown, and so does what its contexts take.
//
// A process of another job that appears in just that moment, before ours does, is taken for ours; doubt_host_pid(). A
// process whose number is not known goes on looking: whoever's memory follows its own, byte for byte, is this process.
#pragma once

#include <cstdint>

#include "base/file_lock.h"
#include "base/scoped.h"
#include "nvml_client.h"

namespace vgpu::runtime {

inline constexpr std::uint32_t kInitialPidNamespace = 0xEFFFFFFC;  // its inode, the same on every Linux

// 0: unknown.
unsigned nvml_pid();

// The same for a list that NVML has just given, in which this process may go by either of its numbers. `held` is what it
// is charged for on the device.
unsigned pid_in(unsigned dev, const NvmlProcesses &processes, std::uint64_t held);

// NVML said something of the process it calls so that cannot be true of us. True: then it was another one, and the number
// is searched for again.
bool doubt_host_pid();

// Around a call that makes a context on a device. Does nothing where the number is known, or cannot be found this way.
class HostPidSearch {
 public:
  explicit HostPidSearch(unsigned dev);
  ~HostPidSearch();
  HostPidSearch(const HostPidSearch &) = delete;
  HostPidSearch &operator=(const HostPidSearch &) = delete;

  // The context is there.
  void finish();

 private:
  bool begin();
  unsigned find_new() const;

  unsigned dev_;
  bool ours_ = false;    // this thread's turn
  bool active_ = false;  // under the lock, with a list of who was there before
  ScopedFd file_;
  FileLock lock_;  // after `file_`: let go before it is closed
  NvmlProcesses before_;
};

}  // namespace vgpu::runtime
