// RAII for file descriptors and mappings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace vgpu {

class ScopedFd {
 public:
  ScopedFd() = default;
  explicit ScopedFd(int fd) : fd_(fd) {}
  ScopedFd(ScopedFd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ScopedFd &operator=(ScopedFd &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ScopedFd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class ScopedMapping {
 public:
  ScopedMapping() = default;
  // On failure errno says why and the mapping is empty.
  ScopedMapping(int fd, std::size_t size, int protection) : size_(size) {
    void *base = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED) base_ = base;
  }
  ScopedMapping(ScopedMapping &&other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ScopedMapping &operator=(ScopedMapping &&other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ScopedMapping() {
    if (base_ != nullptr) munmap(base_, size_);
  }

  void *get() const { return base_; }
  explicit operator bool() const { return base_ != nullptr; }

 private:
  void *base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace vgpu
