#include "filtered_list.h"

#include "job_processes.h"

namespace vgpu::runtime {

void FilteredList::keep_job_processes() {
  JobProcesses job;
  for (unsigned i = 0; i < count(); ++i) job.see(pid(i));
  keep([&](unsigned pid) { return job.has(pid); });
}

nvmlReturn_t FilteredList::give(unsigned *room, void *entries) const {
  const bool fits = count() <= *room;
  *room = count();
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  copy_to(entries);
  return NVML_SUCCESS;
}

}  // namespace vgpu::runtime
