// A private region: vgpu-run makes it for its user in a directory that nobody else can enter, and removes it at its end.
//
//   ${XDG_RUNTIME_DIR:-/tmp}/vgpu-UID/PID-START/
//
// A vgpu-run that was killed cannot clear up, so the next one does it. Whether a region's maker is still there is told by
// a lock on its directory, which the kernel drops with its maker: that holds across PID namespaces and for reused PIDs. Regions
// are made, swept and removed one at a time, under a lock on vgpu-UID.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/scoped.h"
#include "region/region.h"

namespace vgpu::node {

// XDG_RUNTIME_DIR (`given`, may be null) if it is a directory of ours; a job may have inherited one that is not there.
std::string runtime_directory(const char *given);

// Where the caller's private regions are.
std::string private_directory(const std::string &runtime_directory);

// Whether that is there and the caller's. Somebody else's is none of theirs: what is in it is not looked at.
bool is_own_directory(const std::string &path);

// PID-START, or what the region library makes on the way to it and away from it.
bool is_region_name(const std::string &name);

enum class Leftovers : std::uint8_t { keep, remove };

// What the caller's vgpu-runs that were killed have left.
Error find_abandoned(const std::string &runtime_directory, Leftovers leftovers, std::vector<std::string> *paths);

class PrivateRegion {
 public:
  PrivateRegion() = default;
  ~PrivateRegion() { remove(); }
  PrivateRegion(const PrivateRegion &) = delete;
  PrivateRegion &operator=(const PrivateRegion &) = delete;

  // Makes vgpu-UID, waits for its lock and removes what others left there. Up to here there is nothing to clear up.
  Error open_parent(const std::string &runtime_directory);
  Error create(const region::RegionSpec &spec);
  // What cannot be removed stays for the next vgpu-run.
  void remove();

  std::string path() const { return parent_ + "/" + name_; }

 private:
  std::string parent_;
  ScopedFd parent_lock_;  // from open_parent() to create()
  std::string name_;      // empty: there is none
  ScopedFd lock_;         // as long as we live
};

}  // namespace vgpu::node
