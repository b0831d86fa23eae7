// vgpuctl audit: who holds GPU memory, and who of them is counted.
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "columns.h"
#include "commands.h"
#include "node/counted_processes.h"
#include "node/print_error.h"
#include "node/proc_files.h"
#include "node/processes.h"
#include "node/values.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

std::string owner_of(int pid) {
  struct stat status;
  return stat(("/proc/" + std::to_string(pid)).c_str(), &status) == 0 ? user_name(status.st_uid) : kUnknown;
}

struct Entry {
  const RegionView *region = nullptr;  // that counts the process, or may
  bool sure = true;
  std::optional<std::uint64_t> counted;
};

std::uint64_t missing_in(const Entry &entry, const node::GpuProcess &process) {
  const std::uint64_t counted = entry.counted.value_or(process.bytes);
  return process.bytes > counted + node::kCountTolerance ? process.bytes - counted : 0;
}

std::string verdict_of(const Entry &entry, std::uint64_t missing) {
  if (entry.region == nullptr) return "NOT COUNTED";
  if (!entry.sure) return "may be a rank in a PID namespace";
  return missing == 0 ? "counted" : "counted, but " + node::format_bytes(missing >> 20 << 20) + " too little";
}

Entry find_entry(const NodeView &view, const node::GpuProcess &process) {
  Entry maybe;
  for (const RegionView &region : view.regions) {
    if (!region.snapshot) continue;
    const node::CountedProcesses counted(*region.snapshot);
    if (!counted.covers_gpu(process.uuid)) continue;
    if (counted.contains(process.pid))
      return {&region, true, node::counted_memory(*region.snapshot, process.pid, process.uuid)};
    if (counted.may_contain_by_other_pid(process.pid)) maybe = {&region, false, {}};
  }
  return maybe;
}

}  // namespace

int audit(const Options &options) {
  // First NVML, then the regions: a process that starts in between is only in its region, and is not shown.
  std::vector<node::GpuProcess> processes;
  if (const Error error = list_gpu_processes(options.probe(), &processes)) {
    complain(error);
    return kRefused;
  }
  const NodeView view = look(options, region::Detail::memory);
  std::map<std::string, std::string> numbers;
  for (const RegionView &region : view.regions) {
    for (const DeviceView &device : region.devices) numbers[device.uuid] = device.gpu;
  }
  Table table;
  for (const char *title : {"PID", "USER", "COMMAND", "GPU", "NVML", "COUNTED", "JOBID", "VERDICT"}) {
    table.add_column(title, title[0] == 'P' || title[0] == 'N' || title == std::string("COUNTED") ? Table::Align::right
                                                                                                  : Table::Align::left);
  }
  const ColumnStyle style = {options.bytes};
  bool uncounted = false;
  for (const node::GpuProcess &process : processes) {
    const Entry entry = find_entry(view, process);
    const bool missing = entry.region == nullptr;
    uncounted = uncounted || missing;
    const std::uint64_t too_little = missing_in(entry, process);
    const auto number = numbers.find(process.uuid);
    table.add_row({{std::to_string(process.pid)},
                   {owner_of(process.pid)},
                   {node::process_name(process.pid)},
                   {number != numbers.end() ? number->second : process.uuid},
                   {size_text(process.bytes, style)},
                   {size_text(entry.counted, style)},
                   {missing ? kUnknown : entry.region->job},
                   {verdict_of(entry, too_little), missing          ? kRed
                                                   : too_little > 0 ? kYellow
                                                                    : ""}});
  }
  if (!print(table.text({options.header, options.parsable, wants_color(options.color), ""}))) return kRefused;
  const int status = complain_about(view);
  if (uncounted && geteuid() != 0) {
    node::print_error("only root can see who is counted in the jobs of others");
  }
  return uncounted ? kUncounted : status;
}

}  // namespace vgpu::ctl
