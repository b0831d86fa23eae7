// Memory that another process made and this one opened. It is charged once, where it was made.
//
// Some drivers count it for every process that holds it. Whether this one does is learned from the first import: what NVML
// shows beyond the books is then explained by what this process has opened, but by no more than the job's other ranks have
// shared and are charged for. When they free it, or end, whoever NVML shows pays. What was opened is written into the
// region, for those who look at this rank from outside.
#pragma once

#include <cstdint>

namespace vgpu::runtime {

// Around a call that opens memory of another process, probably on this device; kNotInJob: nobody knows.
class Import {
 public:
  explicit Import(int dev);
  // It is there, on a device of the job's, under a key that import_closed() will name. 0 bytes: of a size that no call tells.
  void finish(unsigned dev, std::uint64_t key, std::uint64_t bytes);

 private:
  int dev_;
  bool learning_ = false;
  std::uint64_t before_ = 0;  // what NVML showed beyond the books
};
// It is no smaller than this.
void import_is_at_least(std::uint64_t key, std::uint64_t bytes);
void import_closed(std::uint64_t key);
// The same, and a look is due: if its maker is gone, it may have been charged here.
void close_import(std::uint64_t key);
bool has_imports();  // cheap
std::uint64_t explained_by_imports(unsigned dev);

// What this process has shared, and what of that it is no longer charged for.
void exported(unsigned dev, std::uint64_t bytes);
bool has_exported(unsigned dev);
void no_longer_charged(unsigned dev, std::uint64_t bytes);

}  // namespace vgpu::runtime
