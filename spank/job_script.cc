// Before and after a job: its region is made from what the prolog is told, which no user can forge, and removed.
#include <cstdlib>

#include "config.h"
#include "contexts.h"
#include "job_region.h"
#include "log.h"
#include "region/layout.h"
#include "text.h"

namespace vgpu::spank::job_script {

namespace {

bool get_job(spank_t handle, Job *job) {
  return spank_get_item(handle, S_JOB_ID, &job->id) == ESPANK_SUCCESS &&
         spank_get_item(handle, S_JOB_UID, &job->uid) == ESPANK_SUCCESS;
}

}  // namespace

void prolog(spank_t handle, Arguments arguments) {
  Config config;
  if (Error error = Config::parse(arguments.count, arguments.words, &config)) {
    log_error("%s", error.text);  // the steps meet the same error, and fail with it
    return;
  }
  set_log_level(config.log);
  Job job;
  if (!get_job(handle, &job)) {
    log_error("vgpu: prolog: Slurm does not say which job this is; its steps will see to it");
    return;
  }
  std::vector<unsigned> gpus;
  const char *given = std::getenv("SLURM_JOB_GPUS");
  if (given != nullptr && !parse_index_list(given, kMaxDevices, &gpus)) {
    log_error("vgpu: job %u: SLURM_JOB_GPUS=%s is not a list of GPUs", job.id, given);
  }
  const Outcome outcome = prepare_in_prolog(config, job, given_options(handle), gpus);
  if (!outcome.sentence.empty()) log_error("%s (job %u)", outcome.sentence.c_str(), job.id);
}

void epilog(spank_t handle, Arguments arguments) {
  Config config;
  if (Error error = Config::parse(arguments.count, arguments.words, &config)) log_error("%s", error.text);
  set_log_level(config.log);
  Job job;
  if (!get_job(handle, &job)) return;
  if (Error error = forget_job(config, job.id)) log_error("%s (job %u)", error.text, job.id);
}

}  // namespace vgpu::spank::job_script
