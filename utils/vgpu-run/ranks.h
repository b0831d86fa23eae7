// Starts the ranks, passes signals on to them, and waits for the last one.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

namespace vgpu::run {

// What the caller of vgpu-run had set, for the ranks to have as well.
struct CallersSignals {
  sigset_t mask;
  struct sigaction pipe;
};

// From now on the signals that would end us, and SIGCHLD, wait until run_ranks() takes them. To be called before anything
// exists that must be cleared up.
CallersSignals hold_signals();

// The ranks inherit our environment, with their number and their count (VGPU_RANK, VGPU_SIZE), and our standard streams,
// and do not outlive us. Returns the exit status of vgpu-run; what kept them from starting has been said. `deaths`: a
// sentence for each rank that a signal ended which did not go to all.
int run_ranks(unsigned ranks, const std::vector<std::string> &command, const CallersSignals &signals,
              std::vector<std::string> *deaths);

}  // namespace vgpu::run
