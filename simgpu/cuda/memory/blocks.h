// Physical device memory: 2 MiB blocks, claimed and given back directly in the device's shared owner words, without a
// lock, so that a client killed or stopped at any instruction never holds up another. The words are the truth; the kernel
// process frees a dead client's blocks by looking for its slot in them.
#pragma once

#include <cstdint>
#include <vector>

#include "simgpu/node/layout.h"

namespace simgpu {

using BlockList = std::vector<uint32_t>;

class BlockSource {
 public:
  void attach(DeviceState *state, char *bytes, unsigned slot) {
    state_ = state;
    bytes_ = bytes;
    slot_ = slot;
  }

  // Adds `count` blocks to `out`, all or none; false means the device is exhausted.
  // Calls of one process are serialised by the driver's lock.
  bool take(uint32_t count, BlockUse use, BlockList *out);
  // Gives the blocks back; `touched` says that their bytes may have been written and must be dropped.
  void give(const BlockList &blocks, bool touched);

  uint64_t free_bytes(const NodeState &node) const;
  uint64_t total_bytes() const { return state_->block_count * kBlockBytes; }
  char *at(uint32_t block) const { return bytes_ + block * kBlockBytes; }
  // Drops the bytes of a whole block: it reads as zeros and takes no host memory until written again.
  void clear(uint32_t block) const;

 private:
  bool claim_round(uint32_t count, uint32_t word, BlockList *out);
  bool others_claiming() const;
  bool roll_back(size_t before, uint32_t rollbacks, BlockList *out);
  void count_taken(uint32_t count);

  DeviceState *state_ = nullptr;
  char *bytes_ = nullptr;
  unsigned slot_ = 0;
  uint32_t hint_ = 0;
};

}  // namespace simgpu
