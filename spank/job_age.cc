#include "job_age.h"

#include "slurm.h"

namespace vgpu::spank {

Error job_start(std::uint32_t job_id, std::int64_t *seconds) {
  job_info_msg_t *answer = nullptr;
  if (slurm_load_job(&answer, job_id, SHOW_ALL) != SLURM_SUCCESS || answer == nullptr) {
    return make_error(Fault::system, "slurmctld does not say when job %u started", job_id);
  }
  bool found = false;
  for (std::uint32_t i = 0; i < answer->record_count && !found; ++i) {
    found = answer->job_array[i].job_id == job_id;
    if (found) *seconds = answer->job_array[i].start_time;
  }
  slurm_free_job_info_msg(answer);
  if (!found) return make_error(Fault::not_found, "slurmctld does not know job %u", job_id);
  return {};
}

}  // namespace vgpu::spank
