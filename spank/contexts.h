// What the plugin does in each of the places where Slurm runs it. A row of a context's functions is called by plugin.cc.
#pragma once

#include "slurm.h"

namespace vgpu::spank {

struct Arguments {
  int count;
  char **values;
};

// srun, sbatch and salloc, as the user. Not 0: nothing is submitted.
namespace client {
int init(spank_t handle, Arguments arguments);
int init_post_opt(spank_t handle);
}  // namespace client

// slurmd itself, as root, when it starts.
namespace slurmd {
int init(Arguments arguments);
}

// The process that slurmd starts before and after a job, as root. A failure would drain the node: there is none.
namespace prolog_epilog {
void prolog(spank_t handle, Arguments arguments);
void epilog(spank_t handle, Arguments arguments);
}  // namespace prolog_epilog

// slurmstepd, as root, and the tasks it forks. Only what task_init_privileged() says reaches the user and fails the step
// without draining the node, so whatever goes wrong before is kept until then.
namespace stepd {
void init(spank_t handle, Arguments arguments);
void init_post_opt(spank_t handle);
int task_init_privileged(spank_t handle);
void task_post_fork(spank_t handle);
void task_exit(spank_t handle);
void defer_failure(const char *sentence);
}  // namespace stepd

}  // namespace vgpu::spank
