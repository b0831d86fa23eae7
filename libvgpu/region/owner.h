// Who really owns a file, also as seen from within a user namespace.
//
// There a user may look like root to himself, and root like nobody: owners are therefore translated to what they are
// outside before anything is believed of them.
#pragma once

#include <sys/types.h>

namespace vgpu {

inline constexpr uid_t kUnmappedUser = static_cast<uid_t>(-1);

// A copy of /proc/self/uid_map; the identity where there is none.
class UserMap {
 public:
  UserMap();

  // kUnmappedUser: somebody who has no name in here.
  uid_t outside(uid_t inside) const;
  bool maps_root() const;

 private:
  struct Range {
    unsigned inside;
    unsigned outside;
    unsigned count;
  };
  static constexpr unsigned kMaxRanges = 32;

  Range ranges_[kMaxRanges];
  unsigned count_ = 0;
};

}  // namespace vgpu
