// Before and after a job: its region is made from what the prolog is told, which no user can forge, and removed.
#include <cstdlib>
#include <ctime>

#include "contexts.h"
#include "job_region.h"
#include "log.h"
#include "node/history.h"
#include "node/lists.h"
#include "node/node_name.h"
#include "node/record.h"
#include "node/site_config.h"
#include "region/region.h"
#include "region_dir.h"

namespace vgpu::spank::prolog_epilog {

namespace {

bool get_job(spank_t handle, Job *job) {
  return spank_get_item(handle, S_JOB_ID, &job->id) == ESPANK_SUCCESS &&
         spank_get_item(handle, S_JOB_UID, &job->uid) == ESPANK_SUCCESS;
}

// What the job has used, for `vgpuctl report`. A region that is damaged has nothing to tell.
void write_record(const node::SiteConfig &config, const Job &job) {
  if (config.record.empty()) return;
  region::Snapshot region;
  if (const Error error = region::Snapshot::read(config.directory().job(job.id).path().c_str(), region::Trust::root,
                                                 region::Detail::memory, &region)) {
    if (error.fault != Fault::not_found) log_error("%s (job %u; it is not in the record)", error.text, job.id);
    return;
  }
  node::History history(region.ndev());
  if (const Error error = read_history(config.directory().job(job.id).path(), region.ndev(), &history)) {
    log_error("%s (job %u)", error.text, job.id);  // the rest is worth its line all the same
  }
  const std::string line =
      record_line(region, history, node::node_name(), static_cast<std::uint64_t>(std::time(nullptr)));
  const Error error = node::append_record(config.record, line);
  if (error && error.fault != Fault::not_found) log_error("%s (job %u)", error.text, job.id);
}

}  // namespace

void prolog(spank_t handle, Arguments arguments) {
  node::SiteConfig config;
  if (Error error = node::SiteConfig::parse(arguments.count, arguments.values, &config)) {
    log_error("%s", error.text);  // the steps meet the same error, and fail with it
    return;
  }
  set_log_level(config.log);
  Job job;
  if (!get_job(handle, &job)) {
    log_error("prolog: Slurm does not say which job this is; its steps will see to it");
    return;
  }
  std::vector<unsigned> gpus;
  const char *given = std::getenv("SLURM_JOB_GPUS");
  if (given != nullptr && !node::parse_index_list(given, region::kMaxDevices, &gpus)) {
    log_error("job %u: SLURM_JOB_GPUS=%s is not a list of GPUs", job.id, given);
  }
  const RawOptions options = given_options(handle);
  log_debug("prolog of job %u: %s, GPUs %s", job.id, options.text().c_str(),
            gpus.empty() ? "none" : node::format_index_list(gpus).c_str());
  const Decision decision = prepare_in_prolog(config, job, options, gpus);
  log_debug("prolog of job %u: the job is %s", job.id, name_of(decision.state));
  if (!decision.reason.empty()) log_error("%s (job %u)", decision.reason.c_str(), job.id);
}

void epilog(spank_t handle, Arguments arguments) {
  node::SiteConfig config;
  if (Error error = node::SiteConfig::parse(arguments.count, arguments.values, &config)) log_error("%s", error.text);
  set_log_level(config.log);
  Job job;
  if (!get_job(handle, &job)) return;
  write_record(config, job);
  if (Error error = remove_job(config, job.id)) {
    log_error("%s (job %u)", error.text, job.id);
  } else {
    log_debug("epilog of job %u: nothing of it is left in %s", job.id, config.region_dir.c_str());
  }
}

}  // namespace vgpu::spank::prolog_epilog
