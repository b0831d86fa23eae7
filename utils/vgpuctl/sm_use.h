// Which share of the SMs each job uses.
//
// NVML tells it of every job and takes its time. The region of a job that is held to an SM limit tells it at once: from
// what was let through between two readings.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "node/processes.h"
#include "view.h"

namespace vgpu::ctl {

// From NVML. Leaves it as it is where NVML does not answer; that is not worth a word in a list of jobs.
void add_sm_use(const Options &options, NodeView *view);
void add_sm_use(const std::vector<node::GpuProcess> &processes, NodeView *view);

// From the regions. The first time that it meets a job it waits for a tenth of a second, later it has what it saw before.
// Where no job has an SM limit it does nothing.
class SmMeter {
 public:
  void add_to(NodeView *view);

 private:
  using Place = std::pair<std::string, unsigned>;  // the region's path, the device in it

  std::map<Place, node::SmReading> last_;
};

}  // namespace vgpu::ctl
