// Asks NVML and hwloc what GPUs this node has, in a program of its own: vgpu-probe.
//
// Drivers hang, crash and leave threads behind, and the caller may be a plugin inside slurmd. Why a program, and not a
// fork of the caller: a child forked from a process with threads may only call what is safe in a signal handler, and
// dlopen, NVML and hwloc are not (the loader's lock is not reset by fork: a thread inside dlopen would hang the child);
// and a caller that has NVML loaded itself, as slurmd with AutoDetect=nvml does, would hand its half-open state down.
// posix_spawn has neither trouble, installs no handler, and needs nothing of hwloc or NVML in the caller.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/scoped.h"
#include "node.h"

namespace vgpu::node {

struct ProbeOptions {
  std::string program;    // empty: the vgpu-probe that was installed with us
  std::string nvml;       // a library's path or name; empty: libnvidia-ml.so.1
  std::string hwloc_xml;  // a topology saved by lstopo; empty: this machine's
  unsigned deadline_ms = 10'000;
};

// Replaces `node->driver`, `node->devices` and `node->problems`; on an error changes nothing. Absent, failing, hanging and crashing NVML
// each have a sentence of their own. Returns soon after the deadline at the latest, and leaves no child behind, also
// when the caller ignores SIGCHLD or another thread reaps everything.
Error probe_devices(const ProbeOptions &options, Node *node);

// What the program prints when it is given the words of `mode` as well, for others that ask it something.
Error run_probe(const ProbeOptions &options, const std::vector<std::string> &mode, std::string *answer);

// A probe that stays, with NVML open, for somebody who asks every few seconds.
class ProbeServer {
 public:
  explicit ProbeServer(const ProbeOptions &options) : options_(options) {}
  ~ProbeServer() { stop(); }
  ProbeServer(const ProbeServer &) = delete;
  ProbeServer &operator=(const ProbeServer &) = delete;

  // Starts it if it is not there. One that does not answer in time is ended; while it hangs in the kernel, no other is started.
  Error ask(std::string *answer);
  void stop();

 private:
  Error start_if_needed();

  ProbeOptions options_;
  pid_t child_ = -1;
  ScopedFd questions_;
  ScopedFd answers_;
};

}  // namespace vgpu::node
