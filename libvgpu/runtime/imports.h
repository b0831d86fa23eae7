// Memory that another process made and this one opened. It is charged once, where it was made.
//
// Some drivers count it for every process that holds it. Whether this one does is learned from the first import: what NVML
// shows beyond the books is then explained by what this process has opened, but by no more than the job's other ranks have
// shared and are charged for. When they free it, or end, whoever NVML shows pays.
#pragma once

#include <cstdint>

namespace vgpu::runtime {

// Around a call that opens memory of another process.
class Import {
 public:
  explicit Import(unsigned dev);
  // It is there, under a key that import_closed() will name.
  void finish(std::uint64_t key, std::uint64_t bytes);

 private:
  unsigned dev_;
  bool learning_ = false;
  std::uint64_t seen_before_ = 0;
};
void import_closed(std::uint64_t key);
std::uint64_t explained_by_imports(unsigned dev);

// What this process has shared, and what of that it is no longer charged for.
void exported(unsigned dev, std::uint64_t bytes);
bool has_exported(unsigned dev);
void no_longer_charged(unsigned dev, std::uint64_t bytes);

}  // namespace vgpu::runtime
