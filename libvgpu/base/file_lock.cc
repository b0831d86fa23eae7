#include "file_lock.h"

#include <fcntl.h>
#include <time.h>

#include <cerrno>

#include "clock.h"

namespace vgpu {

namespace {

constexpr long kNsPerMs = 1'000'000;

bool set_lock(int fd, std::int64_t byte, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

}  // namespace

FileLock::~FileLock() {
  if (fd_ >= 0) set_lock(fd_, byte_, F_UNLCK);
}

Error FileLock::acquire(int fd, std::int64_t byte, unsigned timeout_ms, FileLock *lock) {
  const std::uint64_t deadline = monotonic_ns() + std::uint64_t{timeout_ms} * kNsPerMs;
  while (!set_lock(fd, byte, F_WRLCK)) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return system_error("cannot lock");
    if (monotonic_ns() >= deadline) {
      return make_error(Fault::timeout, "another process has held the lock for %u ms; try again", timeout_ms);
    }
    const timespec pause = {0, kNsPerMs};
    nanosleep(&pause, nullptr);
  }
  lock->fd_ = fd;
  lock->byte_ = byte;
  return {};
}

}  // namespace vgpu
