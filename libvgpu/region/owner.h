// Who really owns a file, also as seen from within a user namespace, and whether such a file may be believed.
//
// There a user may look like root to themselves, and root like nobody: owners are therefore translated to what they are
// outside before anything is believed of them.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace vgpu::region {

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

enum class Trust : std::uint8_t {
  root,          // only what root made
  root_or_self,  // also what the caller made
};

// What holds for this process: inside a Slurm job only root's regions count, or every job could make itself a wider one.
// The variable by which a job is recognised is all that region/ knows of Slurm.
Trust trust_here();

// Whether a file with this owner, as seen from here, may be believed.
bool is_trusted(uid_t owner, Trust trust, const UserMap &users);

}  // namespace vgpu::region
