#include "job_region.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "devices.h"
#include "job_age.h"
#include "job_files.h"
#include "job_limits.h"
#include "log.h"
#include "mps.h"
#include "node/admission.h"
#include "node/region_limits.h"
#include "node/running_steps.h"
#include "region_dir.h"
#include "usage_mount.h"

namespace vgpu::spank {

namespace {

Decision failure(const Error &error) {
  return {error.fault == Fault::invalid ? JobState::refused : JobState::broken, error.text};
}

// A preload that ld.so cannot load is skipped with a line on stderr, and the task would run without limits.
Error check_library(const node::SiteConfig &config) {
  struct stat status;
  if (stat(config.library.c_str(), &status) != 0) {
    return make_error(Fault::not_found, "the library %s: %s; install it, or set library= in plugstack.conf",
                      config.library.c_str(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ||
      (status.st_mode & S_IROTH) == 0) {
    return make_error(Fault::wrong_owner, "the library %s must be root's, readable by all and writable by nobody else",
                      config.library.c_str());
  }
  return {};
}

struct Plan {
  bool wanted = false;
  bool launch_hooks = false;
  std::vector<region::DeviceSpec> devices;
};

// Whether the library holds the job to its SM limit, now or, with sm=live, when it gets one.
bool hooks_launches(const node::SiteConfig &config, const std::vector<region::DeviceSpec> &devices) {
  if (config.sm == node::SmBy::live) return true;
  const bool limited = std::any_of(devices.begin(), devices.end(),
                                   [](const region::DeviceSpec &device) { return device.sm_percent < 100; });
  return limited && config.sm != node::SmBy::mps && !(config.sm == node::SmBy::automatic && site_runs_mps());
}

Error make_plan(const node::SiteConfig &config, const Request &request, const std::vector<unsigned> &gpus,
                unsigned shards, Plan *plan) {
  const bool asked = !request.mem.empty() || request.sm;
  if (gpus.empty()) {
    if (!asked) return {};
    return make_error(Fault::invalid,
                      "--gpu-mem and --gpu-sm: this job has no GPU on this node; ask for one with --gres=gpu:1 or "
                      "--gres=shard:N");
  }
  if (!wants_limits(config, request, shards)) {
    if (!config.require_limits) return {};
    return make_error(Fault::invalid, "this site wants a limit for every job with a GPU; add --gpu-mem=SIZE");
  }
  std::vector<node::NodeDevice> devices;
  if (Error error = find_devices(config, gpus, &devices)) return error;
  // What is wrong with the request comes first: failing open is no way around it.
  if (Error error = decide_limits(config, request, shards, devices, &plan->devices)) return error;
  if (Error error = check_library(config)) return error;
  plan->wanted = true;
  plan->launch_hooks = hooks_launches(config, plan->devices);
  return {};
}

// Under the admission lock.
Error create(const node::SiteConfig &config, const Job &job, const RawOptions &options, const Plan &plan) {
  const std::string name = std::to_string(job.id);
  std::vector<Error> unreadable;
  const Error refusal = node::admit(config.directory(), config.overcommit_percent, name, plan.devices, &unreadable);
  for (const Error &error : unreadable) log_error("%s (beside job %u; its limits are not counted)", error.text, job.id);
  if (refusal) return refusal;
  region::RegionSpec spec;
  spec.job_id = job.id;
  spec.uid = job.uid;
  spec.launch_hooks = plan.launch_hooks;
  spec.ndev = static_cast<unsigned>(plan.devices.size());
  spec.devices = plan.devices.data();
  spec.own_room = config.own_room && can_carry_mounts();
  Error error = region::Region::create(config.region_dir.c_str(), name.c_str(), spec);
  if (error && spec.own_room && error.fault == Fault::system) {
    log_error("%s; the usage of job %u shares the room of the regions", error.text, job.id);
    spec.own_room = false;
    error = region::Region::create(config.region_dir.c_str(), name.c_str(), spec);
  }
  if (error) return error;
  if ((error = JobFiles(config, job.id).write_request(options))) {
    log_error("%s", error.text);  // only the comparison with steps after a live change needs it
  }
  for (const region::DeviceSpec &device : plan.devices) {
    log_info("job %u: GPU %s: %llu bytes, %u percent of the SMs", job.id, device.identity.uuid,
             static_cast<unsigned long long>(device.memory_limit), device.sm_percent);
  }
  log_debug("job %u: its region is made from %s; its launches are %s", job.id, options.text().c_str(),
            plan.launch_hooks ? "hooked" : "not hooked");
  return {};
}

// A prolog can come twice for the same job, when slurmd lost its memory while steps run. Their region stays.
// Without a plan of our own (a step will make it) it is theirs if it is the user's. That steps run is told by Slurm's
// daemons: what the region says of its ranks is its user's to write, and a later job of this id would keep an old limit.
bool is_in_use(const node::SiteConfig &config, const Job &job, const Plan &plan) {
  node::RegionLimits limits;
  if (read_region_limits(config.directory(), std::to_string(job.id), region::Trust::root, &limits)) return false;
  if (limits.job.uid != job.uid) return false;
  if (plan.wanted && limits.devices.size() != plan.devices.size()) return false;
  for (std::size_t dev = 0; plan.wanted && dev < limits.devices.size(); ++dev) {
    if (std::strcmp(limits.devices[dev].identity.uuid, plan.devices[dev].identity.uuid) != 0) return false;
  }
  return node::jobs_with_steps().contains(std::to_string(job.id));
}

Decision decide_in_prolog(const node::SiteConfig &config, const Job &job, const RawOptions &options,
                          const std::vector<unsigned> &gpus) {
  Request request;
  if (Error error = parse_request(options, &request)) return failure(error);
  if (Error error = check_against_site(request, config, job.uid)) return failure(error);
  if (request.opt_out) return {JobState::opted_out, ""};
  // How many shards the job has is told to its steps only: the first of them decides.
  const bool left_to_step = config.shard_mem > 0 && request.mem.empty() && !gpus.empty();
  Plan plan;
  if (!left_to_step) {
    if (Error error = make_plan(config, request, gpus, 0, &plan)) return failure(error);
  }
  node::DirectoryLock lock;
  if (Error error = config.directory().lock_admission(&lock)) return failure(error);
  if ((plan.wanted || left_to_step) && is_in_use(config, job, plan)) {
    log_info("job %u: its region is in use and stays", job.id);
    return {JobState::limited, ""};
  }
  // Whatever has this name is of an earlier job.
  if (Error error = config.directory().remove_job(job.id)) return failure(error);
  if (!plan.wanted) return {JobState::unlimited, ""};
  if (Error error = create(config, job, options, plan)) return failure(error);
  return {JobState::limited, ""};
}

Error check_step_devices(const node::SiteConfig &config, const std::vector<unsigned> &gpus,
                         const node::RegionLimits &limits) {
  std::vector<node::NodeDevice> devices;
  if (Error error = find_devices(config, gpus, &devices)) return error;
  for (const node::NodeDevice &device : devices) {
    const bool listed =
        std::any_of(limits.devices.begin(), limits.devices.end(), [&device](const region::DeviceSpec &spec) {
          return std::strcmp(spec.identity.uuid, device.identity.uuid) == 0;
        });
    if (listed) continue;
    return make_error(Fault::invalid,
                      "GPU %d of this step is not among those for which an earlier step set the job's limits; give "
                      "--gpu-mem when you submit the job",
                      device.gres_index);
  }
  return {};
}

Decision join_region(const node::SiteConfig &config, const Job &job, const StepInfo &step,
                     const node::RegionLimits &limits) {
  RawOptions original_options;
  const bool known = !JobFiles(config, job.id).read_request(&original_options);
  if (!(known && step.options == original_options) && !step.heterogeneous && step.options.any()) {
    Request request;
    Request original;
    if (Error error = parse_request(step.options, &request)) return failure(error);
    const bool comparable = known && !parse_request(original_options, &original);
    if (Error error = check_step(request, comparable ? std::optional(original) : std::nullopt, limits)) {
      return failure(error);
    }
  }
  if (Error error = check_step_devices(config, step.gpus, limits)) return failure(error);
  if (Error error = check_library(config)) return failure(error);
  return {JobState::limited, ""};
}

// Sets `decision` when there is something of this job already.
bool find_existing(const node::SiteConfig &config, const Job &job, const StepInfo &step, Decision *decision) {
  const JobFiles files(config, job.id);
  node::RegionLimits limits;
  const Error error = read_region_limits(config.directory(), std::to_string(job.id), region::Trust::root, &limits);
  if (!error && limits.job.uid == job.uid) {
    log_debug("job %u: it has a region already", job.id);
    *decision = join_region(config, job, step, limits);
    return true;
  }
  if (error && error.fault != Fault::not_found) {
    *decision = failure(error);
    return true;
  }
  if (!error) {
    log_debug("job %u: the region of that name is of uid %u, whose job had no epilog", job.id, limits.job.uid);
    return false;
  }
  if (files.read_opt_out()) {
    log_debug("job %u: it has opted out already", job.id);
    *decision = {JobState::opted_out, ""};
    return true;
  }
  std::string sentence;
  if (files.read_error(&sentence)) {
    log_debug("job %u: it was refused already", job.id);
    *decision = {JobState::refused, sentence};
    return true;
  }
  return false;
}

// The same, once no other step is at it: whoever decides has removed the verdict "undecided" before its region is there.
bool find_settled(const node::SiteConfig &config, const Job &job, const StepInfo &step, Decision *decision,
                  bool *undecided) {
  node::DirectoryLock lock;
  if (Error error = config.directory().lock_admission(&lock)) {
    *decision = failure(error);
    return true;
  }
  *undecided = JobFiles(config, job.id).read_undecided();
  return find_existing(config, job, step, decision);
}

// Nothing lies here of a job that has a GPU. Either it is older than we are on this node, or what its prolog decided was
// lost: then nobody may decide anew from what a step asks for.
Error check_unknown_job(const node::SiteConfig &config, const Job &job) {
  std::int64_t since = 0;
  std::int64_t start = 0;
  if (Error error = first_start(config, &since)) return error;
  Error error = job_start(job.id, &start);
  if (!error && start < since) {
    log_info("job %u is older than the first start of this plugin here, and no prolog decided about it", job.id);
    return {};
  }
  return make_error(Fault::invalid,
                    "nothing was decided about this job's GPUs on this node%s%s; submit it again, and tell the "
                    "administrator to look for vgpu in slurmd's log",
                    error ? ": " : "", error.text);
}

}  // namespace

const char *name_of(JobState state) {
  switch (state) {
    case JobState::unlimited:
      return "unlimited";
    case JobState::limited:
      return "limited";
    case JobState::opted_out:
      return "opted out";
    case JobState::refused:
      return "refused";
    case JobState::broken:
      break;
  }
  return "broken";
}

Decision prepare_in_prolog(const node::SiteConfig &config, const Job &job, const RawOptions &options,
                           const std::vector<unsigned> &gpus) {
  std::int64_t since = 0;
  if (Error error = make_region_dir(config)) return failure(error);
  if (Error error = first_start(config, &since)) log_error("%s", error.text);
  const JobFiles files(config, job.id);
  if (Error error = files.write_gpus(gpus)) log_error("%s", error.text);
  Decision decision = decide_in_prolog(config, job, options, gpus);
  // What is not written here, no step of the job can make up for.
  Error error;
  if (decision.state == JobState::opted_out) {
    error = files.write_opt_out();
  } else if (decision.state == JobState::refused || (decision.state == JobState::broken && !config.fail_open)) {
    error = files.write_error(decision.reason);
  } else if (decision.state != JobState::limited && !gpus.empty()) {
    error = files.write_undecided();
  }
  if (error) log_error("%s", error.text);
  return decision;
}

Decision prepare_in_step(const node::SiteConfig &config, const Job &job, const StepInfo &told) {
  StepInfo step = told;
  std::vector<unsigned> gpus = told.gpus;
  if (JobFiles(config, job.id).read_gpus(&gpus)) {
    // Slurm gives a step no others. A number that the step's environment brought along from elsewhere is none of them.
    std::erase_if(step.gpus, [&gpus](unsigned gpu) { return std::find(gpus.begin(), gpus.end(), gpu) == gpus.end(); });
  }
  Decision decision;
  const JobFiles files(config, job.id);
  if (find_existing(config, job, step, &decision)) return decision;
  if (!step.gpus.empty() && !files.read_undecided()) {
    bool undecided = false;
    if (Error error = make_region_dir(config)) return failure(error);
    if (find_settled(config, job, step, &decision, &undecided)) return decision;
    if (!undecided) {
      if (Error error = check_unknown_job(config, job)) return {JobState::refused, error.text};
    }
  }

  Request request;
  if (Error error = parse_request(step.options, &request)) return failure(error);
  if (Error error = check_against_site(request, config, job.uid)) return failure(error);
  // Not remembered: where no prolog ran, every step has to ask for it.
  if (request.opt_out) return {JobState::opted_out, ""};
  // The option may be another component's: its own shards say what this one may have.
  if (step.heterogeneous && step.shards > 0 && config.shard_mem > 0) request.mem = {};
  // A step without a GPU does not know the job's shards, and decides nothing for the others.
  if (step.gpus.empty() && !gpus.empty()) {
    if (!step.options.any()) return {};
    return failure(
        make_error(Fault::invalid, "--gpu-mem and --gpu-sm: this step has no GPU; leave them out, or its --gres=none"));
  }
  Plan plan;
  if (Error error = make_plan(config, request, gpus, step.shards, &plan)) return failure(error);
  if (!plan.wanted) return {};

  if (Error error = make_region_dir(config)) return failure(error);
  node::DirectoryLock lock;
  if (Error error = config.directory().lock_admission(&lock)) return failure(error);
  if (find_existing(config, job, step, &decision)) return decision;  // another step was first
  if (Error error = config.directory().remove_job(job.id)) return failure(error);
  if (Error error = create(config, job, step.options, plan)) {
    if (Error lost = files.write_undecided()) log_error("%s", lost.text);  // another step may ask for less
    return failure(error);
  }
  return {JobState::limited, ""};
}

}  // namespace vgpu::spank
