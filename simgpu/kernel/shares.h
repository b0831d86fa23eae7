// Shared allocations: what VMM export, IPC handles and pool pointers name. Their blocks belong to one process for the
// books (memory is counted once) and pass to another holder when that process goes first, as a driver would keep them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "simgpu/node/layout.h"

namespace simgpu {

class Shares {
 public:
  struct Share {
    uint32_t device = 0;
    uint32_t owner = 0;
    uint64_t bytes = 0;
    uint64_t extra = 0;  // the exporter's own words about it, handed to importers
    std::vector<uint32_t> blocks;
    std::multiset<uint32_t> holders;  // slots; a process may hold the same object more than once
    std::set<uint32_t> importers;     // who holds it without being its owner, by the books
    int descriptors = 0;              // descriptors out there that name it
  };

  Shares(std::vector<DeviceState *> devices, std::vector<char *> bytes)
      : devices_(std::move(devices)), bytes_(std::move(bytes)) {}

  uint64_t add(uint32_t slot, Share share);
  Share *find(uint64_t id);
  void drop(uint64_t id, uint32_t slot);
  void descriptor_closed(uint64_t id);
  // Takes the dead slot out of all objects. Afterwards no owner word of a surviving object names it.
  void process_gone(uint32_t slot);
  // Puts the books right after a change of who holds the object `id`, which must exist.
  void settle(uint64_t id);

 private:
  void count_importers(Share *share);

  std::vector<DeviceState *> devices_;
  std::vector<char *> bytes_;
  std::map<uint64_t, Share> shares_;
  uint64_t next_id_ = 1;
};

}  // namespace simgpu
