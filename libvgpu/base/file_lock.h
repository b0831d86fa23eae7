// An OFD lock on one byte of a file, for the few things that must happen one at a time (never for accounting).
// The kernel drops it with its holder, so there is nothing to recover and no forced unlock.
#pragma once

#include <cstdint>

#include "error.h"

namespace vgpu {

class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(const FileLock &) = delete;
  FileLock &operator=(const FileLock &) = delete;

  // Tries every millisecond until `timeout_ms` from now; then Fault::timeout, and nothing was changed.
  static Error acquire(int fd, std::int64_t byte, unsigned timeout_ms, FileLock *lock);

 private:
  int fd_ = -1;
  std::int64_t byte_ = 0;
};

}  // namespace vgpu
