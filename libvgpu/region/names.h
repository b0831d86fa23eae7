// The names in the directory of regions, /run/vgpu unless the site says otherwise. Whoever opens something there takes its
// name from here.
//
//   <directory>/node             what GPUs this node has, and the site's choice when limits cannot be enforced; root's
//   <directory>/.admission       locked by whoever makes a region or raises a limit
//   <directory>/.node-lock       locked by whoever asks NVML anew
//   <directory>/.watch           locked by the vgpu-watch of this node for as long as it runs, and what it was told
//   <directory>/.gpus-<job>      which GPUs Slurm gave a job, noted by its prolog
//   <directory>/ld.so.preload    with preload=ldso: lies over /etc/ld.so.preload in the tasks
//   <directory>/.new-*, .old-*, .tmp-*
//                                something on its way in or out; left there only by a process that was killed
//   <directory>/<job>/           limits, usage, lock     the region
//                                request, history        beside it: the options it was made from, its past
//                                findings                what vgpu-watch found and its user was not told yet
//                      or        error                   why the job has none: all its steps fail with it
//                      or        opted-out               the job asked to have none, and may
//   <directory>/self             in a task with preload=ldso: its own job's region
#pragma once

namespace vgpu::region {

inline constexpr char kRegionDirectory[] = "/run/vgpu";

inline constexpr char kNodeName[] = "node";
inline constexpr char kSelfRegion[] = "/run/vgpu/self";
inline constexpr char kAdmissionLockName[] = ".admission";
inline constexpr char kNodeLockName[] = ".node-lock";
inline constexpr char kWatchName[] = ".watch";
inline constexpr char kPreloadName[] = "ld.so.preload";

inline constexpr char kLimitsName[] = "limits";
inline constexpr char kUsageName[] = "usage";
inline constexpr char kLockName[] = "lock";
inline constexpr char kRequestName[] = "request";
inline constexpr char kHistoryName[] = "history";
inline constexpr char kFindingsName[] = "findings";
inline constexpr char kErrorName[] = "error";
inline constexpr char kOptedOutName[] = "opted-out";

inline constexpr char kGpusPrefix[] = ".gpus-";
inline constexpr char kNewPrefix[] = ".new-";
inline constexpr char kOldPrefix[] = ".old-";
inline constexpr char kTemporaryPrefix[] = ".tmp-";

}  // namespace vgpu::region
