// Whether a job's memory limits still fit on the GPUs beside those of the jobs that are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/scoped.h"
#include "region_limits.h"

namespace vgpu::node {

// Held by whoever creates a region or raises a limit, from looking to writing. It goes with its holder: nobody ever
// unlocks for somebody else.
class AdmissionLock {
 public:
  static Error acquire(const std::string &region_dir, AdmissionLock *lock);

 private:
  ScopedFd fd_;  // outlives the lock on it
  FileLock lock_;
};

// Under the lock. Fault::invalid: it does not fit; the sentence names the holders.
Error admit(const std::string &region_dir, std::uint64_t overcommit_percent, const std::string &job,
            const std::vector<region::DeviceSpec> &devices);

// The same, without looking at the node: for tests.
Error admit_beside(const std::vector<Promise> &others, std::uint64_t overcommit_percent, const std::string &job,
                   const std::vector<region::DeviceSpec> &devices);

}  // namespace vgpu::node
