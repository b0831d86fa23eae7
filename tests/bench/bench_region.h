// A region with one device in a directory of its own, gone when the benchmark is done with it.
#pragma once

#include <string>

#include "failure.h"
#include "region/region.h"

namespace bench {

inline void check(const vgpu::Error &error) {
  if (error) throw Failure("%s", error.text);
}

class BenchRegion {
 public:
  // Of a device that has just that much, or of another one.
  BenchRegion(const std::string &parent, std::uint64_t memory_limit);
  BenchRegion(const std::string &parent, std::uint64_t memory_limit, const char *uuid, std::uint64_t device_bytes);
  ~BenchRegion();
  BenchRegion(const BenchRegion &) = delete;
  BenchRegion &operator=(const BenchRegion &) = delete;

  const char *directory() const { return directory_.c_str(); }

 private:
  std::string parent_;
  std::string name_;
  std::string directory_;
};

// A rank that this process owns, with the mapping it stands on.
struct AttachedRank {
  explicit AttachedRank(const BenchRegion &made) {
    check(vgpu::region::Region::attach(made.directory(), vgpu::region::Trust::root_or_self, &region));
    check(vgpu::region::Rank::attach(region, &rank));
  }
  bool reserve(std::uint64_t bytes) {
    const vgpu::region::Grant grant = rank.try_to_reserve(0, vgpu::region::Kind::data, bytes);
    if (grant == vgpu::region::Grant::refused) rank.note_refusal(0);
    return grant == vgpu::region::Grant::granted;
  }
  void release(std::uint64_t bytes) { rank.release(0, vgpu::region::Kind::data, bytes); }
  std::uint64_t used() { return rank.memory_used(0); }

  vgpu::region::Region region;
  vgpu::region::Rank rank;
};

}  // namespace bench
