// A process's link to its node: finds or starts the kernel process, holds the socket whose closing means this process's
// death, and maps the shared memory. One per process and library; never torn down, as clients call the driver during exit.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "simgpu/node/clock.h"
#include "simgpu/node/layout.h"
#include "simgpu/node/protocol.h"

namespace simgpu {

struct LinkedDevice {
  DeviceState *state = nullptr;
  char *bytes = nullptr;  // all of the device's memory, sparse; null for clients that never copy
};

class NodeLink {
 public:
  // Connects to the node of SIMGPU_NODE, starting it if need be. Returns 0 or an errno, with a sentence in `error`.
  int connect(bool is_cuda, std::string *error);

  NodeState *node() const { return node_; }
  ClockPage *clock() const { return clock_; }
  unsigned slot() const { return slot_; }
  // False once the kernel process has taken this process for gone, because it closed its socket: a program that closes
  // descriptors it does not know loses its device, here as on hardware.
  bool alive() const { return node_->slots[slot_].generation.load(std::memory_order_relaxed) == generation_; }
  std::vector<LinkedDevice> &devices() { return devices_; }

  // Sends a request and waits for its answer. `blocks` travel with the request and come back with the answer.
  // `fd_in` is sent along when not -1; a descriptor that comes with the answer is put in *fd_out.
  int call(Message *message, std::vector<uint32_t> *blocks = nullptr, int fd_in = -1, int *fd_out = nullptr);

 private:
  int hello(bool is_cuda, std::string *error);

  std::mutex mutex_;  // one request at a time
  int socket_ = -1;
  unsigned slot_ = 0;
  uint32_t generation_ = 0;
  NodeState *node_ = nullptr;
  ClockPage *clock_ = nullptr;
  std::vector<LinkedDevice> devices_;
};

// The node's directory: SIMGPU_NODE, else /run/simgpu where a machine has one, else a per-user default. Created when
// missing.
std::string node_directory();

}  // namespace simgpu
