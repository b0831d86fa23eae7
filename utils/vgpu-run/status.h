// Exit statuses of vgpu-run, as in its man page.
#pragma once

#include <sys/wait.h>

namespace vgpu::run {

inline constexpr int kOwnFailure = 2;
inline constexpr int kCannotStart = 126;
inline constexpr int kNotFound = 127;

// Of a rank, from what waitpid() said.
inline int rank_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace vgpu::run
