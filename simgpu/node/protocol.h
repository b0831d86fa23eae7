// The few things a client asks the node's kernel process for: its slot, and everything that outlives one process (shared
// allocations, memory limits). Ordinary allocation never comes here. One request, one reply, over a SOCK_SEQPACKET socket.
#pragma once

#include <cstdint>

#include "simgpu/node/layout.h"

namespace simgpu {

enum class Op : uint32_t {
  kHello = 1,  // argument: 1 for a CUDA client; reply: slot, device count, and the descriptors of all shared memory
  kExport,     // blocks of mine become a shared object; reply: its id
  kExportFd,   // reply carries a descriptor that names the object and keeps it alive
  kImport,     // by id; reply: device, size, blocks. I hold the object from now on
  kImportFd,   // the same, by descriptor
  kDrop,       // I no longer hold the object; the last holder's drop frees the blocks
  kSetLimit,   // r615 memory limit for a cgroup path
  kBreak,      // argument: what becomes of the device: kDeviceOk, kDeviceBroken or kDeviceLost
  kStop,       // end the node once the last client has gone
};

struct Message {
  Op op;
  int32_t status;  // errno, 0 for success
  uint32_t device;
  uint32_t argument;
  uint64_t id;
  uint64_t bytes;
  uint64_t extra;
  char text[256];
  uint32_t block_count;
  uint32_t blocks[];
};

constexpr size_t kMaxMessageBytes = 512 << 10;

}  // namespace simgpu
