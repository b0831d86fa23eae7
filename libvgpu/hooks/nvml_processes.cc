// Who uses a device: NVML's lists in all their versions, of which the job sees its own processes.
#include "driver/table.h"
#include "runtime/filtered_list.h"
#include "runtime/job_processes.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

// The versions differ in how much is written for a process, which is measured.
#define LIST_HOOK(symbol, protocol, Entry)                                                                        \
  nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, Entry *infos) {                                   \
    return list_job_processes(protocol, count, infos,                                                             \
                              [&](unsigned *all, Entry *entries) { return REAL(symbol)(device, all, entries); }); \
  }
#define LIST_HOOKS(kind)                                                              \
  LIST_HOOK(nvmlDeviceGet##kind##RunningProcesses, kRunning, nvmlProcessInfo_v1_t)    \
  LIST_HOOK(nvmlDeviceGet##kind##RunningProcesses_v2, kRunning, nvmlProcessInfo_v2_t) \
  LIST_HOOK(nvmlDeviceGet##kind##RunningProcesses_v3, kRunning, nvmlProcessInfo_t)

extern "C" {

LIST_HOOKS(Compute)
LIST_HOOKS(Graphics)
LIST_HOOKS(MPSCompute)
LIST_HOOK(nvmlDeviceGetEncoderSessions, kSessions, nvmlEncoderSessionInfo_t)
LIST_HOOK(nvmlDeviceGetFBCSessions, kSessions, nvmlFBCSessionInfo_t)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
  if (list == nullptr || nvml_depth != 0 || mode() != Mode::active)
    return REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
  // What we cannot read we cannot filter; programs fall back to the version that the oldest driver knows.
  if (list->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return list_job_processes(kRunning, &list->numProcArrayEntries, list->procArray,
                            [&](unsigned *all, nvmlProcessDetail_v1_t *entries) {
                              nvmlProcessDetailList_t ours = {list->version, list->mode, *all, entries};
                              const nvmlReturn_t result = REAL(nvmlDeviceGetRunningProcessDetailList)(device, &ours);
                              *all = ours.numProcArrayEntries;
                              return result;
                            });
}

// NVML also remembers processes that have ended. The region does not, so those are nobody's.
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids) {
  return list_job_processes(kRunning, count, pids, [&](unsigned *all, unsigned *entries) {
    return REAL(nvmlDeviceGetAccountingPids)(device, all, entries);
  });
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats) {
  const NvmlCall call;
  if (!call.is_the_programs() || mode() != Mode::active) return REAL(nvmlDeviceGetAccountingStats)(device, pid, stats);
  nvmlAccountingStats_t found = {};
  const nvmlReturn_t result = REAL(nvmlDeviceGetAccountingStats)(device, pid, stats != nullptr ? &found : nullptr);
  if (result != NVML_SUCCESS) return result;
  JobProcesses job;
  job.see(pid);
  if (!job.has(pid)) return NVML_ERROR_NOT_FOUND;
  *stats = found;
  return result;
}

}  // extern "C"
