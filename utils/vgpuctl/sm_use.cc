#include "sm_use.h"

#include <algorithm>

#include "node/books.h"
#include "node/processes.h"

namespace vgpu::ctl {

void add_sm_use(const Options &options, NodeView *view) {
  std::vector<GpuProcess> processes;
  if (view->regions.empty() || list_gpu_processes(options.probe(), &processes)) return;
  for (RegionView &region : view->regions) {
    if (!region.snapshot) continue;
    const Books books(*region.snapshot);
    for (DeviceView &device : region.devices) {
      int percent = 0;
      bool known = true;
      for (const GpuProcess &process : processes) {
        if (process.uuid != device.uuid || !books.counts(process.pid)) continue;
        known = known && process.sm_percent >= 0;
        percent += process.sm_percent;
      }
      if (known) device.sm_used = std::min(percent, 100) / 100.0;
    }
  }
}

}  // namespace vgpu::ctl
