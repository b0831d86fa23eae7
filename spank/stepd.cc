// slurmstepd: the job's region is found or made, and every task gets the library.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "audit.h"
#include "contexts.h"
#include "isolation.h"
#include "job_region.h"
#include "log.h"
#include "node/audit_findings.h"
#include "node/lists.h"
#include "node/node_name.h"
#include "node/preload.h"
#include "node/region_limits.h"
#include "node/site_config.h"
#include "node/summary.h"
#include "node/watcher.h"
#include "options.h"
#include "region/region.h"
#include "usage_mount.h"

namespace vgpu::spank::stepd {

namespace {

constexpr char kMpsShare[] = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

// Filled while the step starts; the tasks inherit it by fork.
struct Step {
  node::SiteConfig config;
  RawOptions options;
  Job job;
  Decision decision;
  std::uint32_t tasks = 0;
  std::uint32_t ended = 0;
  std::int64_t audited = 0;  // second of the last audit
  bool can_audit = true;     // an NVML that hangs does so once
  bool fenced = false;       // what slurmstepd runs for its tasks later, is
  IsolatedThread thread;     // the same, with preload=ldso
  ScopedFd usage;            // of the region, for tasks in another mount namespace
};

Step &step() {
  static Step the_step;
  return the_step;
}

int on_value(int option, const char *value, int /*remote*/) {
  set_option(option, value, &step().options);
  return 0;
}

// Empty when the job's environment has no such variable.
std::string job_variable(spank_t handle, const char *name) {
  std::string value(4096, '\0');
  spank_err_t result;
  while ((result = spank_getenv(handle, name, value.data(), static_cast<int>(value.size()))) == ESPANK_NOSPACE &&
         value.size() < (1 << 20)) {
    value.resize(2 * value.size());
  }
  if (result != ESPANK_SUCCESS) return "";
  value.resize(std::strlen(value.c_str()));
  return value;
}

std::uint32_t step_id(spank_t handle) {
  std::uint32_t id = 0;
  return spank_get_item(handle, S_JOB_STEPID, &id) == ESPANK_SUCCESS ? id : 0;
}

StepInfo describe_step(spank_t handle) {
  StepInfo info;
  info.options = step().options;
  info.heterogeneous = !job_variable(handle, "SLURM_HET_SIZE").empty();
  // Batch and interactive steps are told the job's; what else they find may be of the job that it was submitted from.
  const bool has_all = step_id(handle) == SLURM_BATCH_SCRIPT || step_id(handle) == SLURM_INTERACTIVE_STEP;
  node::parse_index_list(job_variable(handle, has_all ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS"), region::kMaxDevices,
                         &info.gpus);
  std::vector<unsigned> shards;
  if (node::parse_index_list(job_variable(handle, "SLURM_SHARDS_ON_NODE"), 1, &shards) && !shards.empty()) {
    info.shards = shards[0];
  }
  return info;
}

void prepare(spank_t handle) {
  Step &self = step();
  if (self.decision.state == JobState::broken) return;  // the configuration
  if (spank_get_item(handle, S_JOB_ID, &self.job.id) != ESPANK_SUCCESS ||
      spank_get_item(handle, S_JOB_UID, &self.job.uid) != ESPANK_SUCCESS) {
    return defer_failure("Slurm does not say which job this is; look at slurmd's log");
  }
  spank_get_item(handle, S_JOB_LOCAL_TASK_COUNT, &self.tasks);
  const StepInfo info = describe_step(handle);
  log_debug("step of job %u: %s, GPUs %s, %u shards%s", self.job.id, info.options.text().c_str(),
            info.gpus.empty() ? "none" : node::format_index_list(info.gpus).c_str(), info.shards,
            info.heterogeneous ? ", heterogeneous" : "");
  self.decision = prepare_in_step(self.config, self.job, info);
  if (self.decision.state == JobState::limited && self.config.audit != node::Audit::off &&
      !node::watcher_runs(self.config.directory())) {
    log_info("%s", node::kNoWatcher);
  }
  log_debug("step of job %u: it is %s", self.job.id, name_of(self.decision.state));
  if (self.decision.state != JobState::limited) return;
  self.usage = hold_usage(self.config, self.job.id);
  if (self.config.preload == node::PreloadBy::ldso) {
    if (Error error = prepare_isolation(self.config)) defer_failure(error.text);
  }
}

bool is_first_task(spank_t handle) {
  int task = 0;
  return spank_get_item(handle, S_TASK_ID, &task) != ESPANK_SUCCESS || task == 0;
}

int refuse(spank_t handle, const char *sentence) {
  // Once per node is enough: all its tasks fail for the same reason.
  if (is_first_task(handle)) log_error("%s", sentence);
  return -1;
}

// A job that was submitted from within another one brings that one's variables along.
int remove_library(spank_t handle) {
  const std::string library = step().config.library;
  const std::string present = job_variable(handle, "LD_PRELOAD");
  const std::string rest = node::without_library(present, library);
  if (rest.empty() && !present.empty()) {
    spank_unsetenv(handle, "LD_PRELOAD");
  } else if (!present.empty()) {
    spank_setenv(handle, "LD_PRELOAD", rest.c_str(), 1);
  }
  spank_unsetenv(handle, "VGPU_REGION");
  return 0;
}

// What the region says, and not what the step asked for: the job's limit is the one that holds. Where the library does not
// hold it, because the region was made without launch hooks, MPS does.
int set_mps_share(spank_t handle) {
  const Step &self = step();
  if (self.config.sm == node::SmBy::option || self.config.sm == node::SmBy::live) return 0;
  node::RegionLimits region;
  if (Error error =
          read_region_limits(self.config.directory(), std::to_string(self.job.id), region::Trust::root, &region)) {
    return refuse(handle, error.text);
  }
  std::uint32_t percent = 100;  // MPS knows one share for all of a process's GPUs
  for (const region::DeviceSpec &device : region.devices) percent = std::min(percent, device.sm_percent);
  if (percent == 100 || region.job.launch_hooks != 0) return 0;
  if (is_first_task(handle)) log_debug("step of job %u: %s=%u", self.job.id, kMpsShare, percent);
  return spank_setenv(handle, kMpsShare, std::to_string(percent).c_str(), 1) == ESPANK_SUCCESS
             ? 0
             : refuse(handle, "the environment of the task cannot be set");
}

// False: Slurm does not let us.
bool set_variables(spank_t handle) {
  const Step &self = step();
  const std::string preload = node::with_library(job_variable(handle, "LD_PRELOAD"), self.config.library);
  const std::string region = self.config.directory().job(self.job.id).path();
  if (is_first_task(handle) && !self.fenced) {
    log_debug("step of job %u: LD_PRELOAD=%s VGPU_REGION=%s", self.job.id, preload.c_str(), region.c_str());
  }
  return spank_setenv(handle, "LD_PRELOAD", preload.c_str(), 1) == ESPANK_SUCCESS &&
         spank_setenv(handle, "VGPU_REGION", region.c_str(), 1) == ESPANK_SUCCESS;
}

int add_library(spank_t handle) {
  const Step &self = step();
  if (Error error = show_usage(self.config, self.job.id, self.usage)) return refuse(handle, error.text);
  if (!set_variables(handle)) return refuse(handle, "the environment of the task cannot be set");
  if (set_mps_share(handle) != 0) return -1;
  if (self.config.preload == node::PreloadBy::ldso) {
    if (Error error = isolate_task(self.config, self.job.id)) return refuse(handle, error.text);
  }
  return 0;
}

void summarize() {
  const Step &self = step();
  region::Snapshot region;
  if (Error error = region::Snapshot::read(self.config.directory().job(self.job.id).path().c_str(), region::Trust::root,
                                           region::Detail::memory, &region)) {
    log_info("%s", error.text);
    return;
  }
  const std::string whose = "job " + std::to_string(self.job.id) + " on " + node::node_name();
  for (const std::string &line : node::summary_lines(region, whose, self.config.summary == node::Summary::always)) {
    log_to_user("%s", line.c_str());
  }
}

}  // namespace

void defer_failure(const char *sentence) { step().decision = {JobState::broken, sentence}; }

void init(spank_t handle, Arguments arguments) {
  Step &self = step();
  if (Error error = node::SiteConfig::parse(arguments.count, arguments.values, &self.config)) defer_failure(error.text);
  set_log_level(self.config.log);
  if (!register_options(handle, on_value)) defer_failure("Slurm does not take the options of this plugin");
}

void init_post_opt(spank_t handle) {
  // The extern step has no tasks of ours, and no options.
  if (step_id(handle) != SLURM_EXTERN_CONT) prepare(handle);
}

int task_init_privileged(spank_t handle) {
  const Step &self = step();
  switch (self.decision.state) {
    case JobState::limited:
      return add_library(handle);
    case JobState::refused:
      return refuse(handle, self.decision.reason.c_str());
    case JobState::broken:
      if (!self.config.fail_open) return refuse(handle, self.decision.reason.c_str());
      if (is_first_task(handle)) {
        log_to_user("%s", self.decision.reason.c_str());
        log_to_user("this site fails open: the step runs WITHOUT its GPU limits");
      }
      return remove_library(handle);
    default:
      return remove_library(handle);
  }
}

// All tasks of the step are forked: what slurmstepd starts from now on as the user are task epilogs.
void task_post_fork(spank_t handle) {
  Step &self = step();
  if (self.decision.state != JobState::limited || self.fenced) return;
  self.fenced = true;
  if (!set_variables(handle)) log_error("the environment of task epilogs cannot be set (job %u)", self.job.id);
  if (self.config.preload != node::PreloadBy::ldso) return;
  if (Error error = self.thread.enter(self.config, self.job.id)) {
    log_error("%s; task epilogs of job %u run without its limits", error.text, self.job.id);
  }
}

void task_exit(spank_t /*handle*/) {
  Step &self = step();
  if (self.decision.state != JobState::limited) return;
  const bool last = ++self.ended == self.tasks;
  self.thread.leave();
  // Asking NVML costs a process: hundreds of tasks that end together are one occasion.
  const std::int64_t now = std::time(nullptr);
  if (self.can_audit && (last || now != self.audited)) self.can_audit = audit_job(self.config, self.job);
  self.audited = now;
  if (self.config.audit != node::Audit::off) {
    for (const std::string &finding : take_findings(self.config.directory().job(self.job.id))) {
      log_error("%s", finding.c_str());
    }
  }
  if (last && self.config.summary != node::Summary::never) summarize();
  if (!last) self.thread.enter_again();
}

}  // namespace vgpu::spank::stepd
