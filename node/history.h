// What root keeps of a region's past, in a file of its own beside it: a region's words only know how things are now.
//
//   <region>/history   root's alone; whoever writes or reads it holds the region's lock
//
// The memory in use is sampled whenever root looks at all regions, as the timer of `vgpuctl metrics` does: no rank takes
// part in it. `vgpuctl set` notes what the limits were. The epilog puts both into the record of the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "region/region.h"

namespace vgpu::node {

// Between two samples memory is taken to have gone from the one to the other; of a longer pause nothing is known.
inline constexpr double kLongestPause_s = 600;

struct DeviceHistory {
  double sampled_s = 0;  // the time between samples
  double byte_seconds = 0;
  std::uint64_t last_used = 0;    // bytes, in the last sample
  std::uint64_t first_limit = 0;  // bytes, before the first change; 0: it was never changed, nor are the next two known
  std::uint64_t highest_limit = 0;
  std::uint64_t highest_sm = 0;      // percent
  std::uint64_t refused_before = 0;  // refusals until the last change
};

struct History {
  double sampled_at = 0;  // seconds since the epoch; 0: never
  std::vector<DeviceHistory> devices;

  explicit History(unsigned ndev = 0) : devices(ndev) {}
};

// A region without the file has an empty history; one that is damaged or of another version counts as such.
Error read_history(const std::string &region, unsigned ndev, History *history);

Error add_sample(const std::string &region, const region::Snapshot &seen, double now);

// What `vgpuctl set` did: the region as it was, and as it is.
Error note_change(const std::string &region, const region::Snapshot &before, const region::Snapshot &after);

}  // namespace vgpu::node
