#include "sm_use.h"

#include <time.h>

#include <algorithm>

#include "node/counted_processes.h"
#include "node/processes.h"

namespace vgpu::ctl {

namespace {

constexpr timespec kBetweenReadings = {0, 100'000'000};

void read_again(RegionView *region) {
  region::Snapshot again;
  if (region::Snapshot::read(region->path.c_str(), region::Trust::root_or_self, region::Detail::memory, &again))
    return;  // it has ended
  for (DeviceView &device : region->devices) {
    if (device.sm_reading && device.place < again.ndev()) device.sm_reading = node::read_sm(again, device.place);
  }
}

}  // namespace

void add_sm_use(const Options &options, NodeView *view) {
  std::vector<node::GpuProcess> processes;
  if (view->regions.empty() || list_gpu_processes(options.probe(), &processes)) return;
  add_sm_use(processes, view);
}

void add_sm_use(const std::vector<node::GpuProcess> &processes, NodeView *view) {
  for (RegionView &region : view->regions) {
    if (!region.snapshot) continue;
    const node::CountedProcesses counted(*region.snapshot);
    for (DeviceView &device : region.devices) {
      int percent = 0;
      bool known = true;
      for (const node::GpuProcess &process : processes) {
        if (process.uuid != device.uuid || !counted.contains(process.pid)) continue;
        known = known && process.sm_percent >= 0;
        percent += process.sm_percent;
      }
      if (known) device.sm_used = std::min(percent, 100) / 100.0;
    }
  }
}

void SmMeter::add_to(NodeView *view) {
  std::map<Place, node::SmReading> seen;
  std::vector<RegionView *> unknown;
  for (RegionView &region : view->regions) {
    bool is_unknown = false;
    for (const DeviceView &device : region.devices) {
      if (!device.sm_reading) continue;
      const auto last = last_.find({region.path, device.place});
      is_unknown = is_unknown || last == last_.end();
      seen.insert({{region.path, device.place}, last == last_.end() ? *device.sm_reading : last->second});
    }
    if (is_unknown) unknown.push_back(&region);
  }
  if (!unknown.empty()) nanosleep(&kBetweenReadings, nullptr);
  for (RegionView *region : unknown) read_again(region);
  last_.clear();
  for (RegionView &region : view->regions) {
    for (DeviceView &device : region.devices) {
      if (!device.sm_reading) continue;
      device.sm_used = sm_share(seen.at({region.path, device.place}), *device.sm_reading);
      last_.insert({{region.path, device.place}, *device.sm_reading});
    }
  }
}

}  // namespace vgpu::ctl
