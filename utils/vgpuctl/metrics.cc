// vgpuctl metrics: what Prometheus wants to know, in its text format. When root looks, each region also gets a sample of
// its memory for its report, and ranks that sleep are charged what their contexts take: nobody else comes by regularly.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>

#include "base/scoped.h"
#include "commands.h"
#include "node/history.h"
#include "node/settle.h"
#include "node/small_files.h"
#include "sm_use.h"
#include "status.h"
#include "table.h"
#include "view.h"

namespace vgpu::ctl {

namespace {

using Value = std::function<std::optional<double>(const RegionView &, const DeviceView &)>;

struct Metric {
  const char *name;
  const char *type;
  const char *help;
  Value value;
};

template <typename T>
std::optional<double> as_double(const std::optional<T> &value) {
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

using R = const RegionView &;
using D = const DeviceView &;

const Metric kMetrics[] = {
    {"vgpu_memory_limit_bytes", "gauge", "Device memory that the job may use on this GPU.",
     [](R, D d) { return static_cast<double>(d.limit); }},
    {"vgpu_memory_used_bytes", "gauge", "Device memory that the job uses on this GPU.",
     [](R, D d) { return as_double(d.used); }},
    {"vgpu_memory_peak_bytes", "gauge", "The most device memory that the job has used on this GPU.",
     [](R, D d) { return as_double(d.peak); }},
    {"vgpu_alloc_refused_total", "counter", "Allocations that were refused because of the limit.",
     [](R, D d) { return as_double(d.refused); }},
    {"vgpu_sm_limit_ratio", "gauge", "Share of the SM time that the job may use on this GPU.",
     [](R, D d) { return d.sm_percent / 100.0; }},
    {"vgpu_sm_used_ratio", "gauge", "Share of the SM time that the job uses on this GPU, as NVML says.",
     [](R, D d) { return d.sm_used; }},
    {"vgpu_throttled_seconds_total", "counter", "Time that launches of the job had to wait for its SM limit.",
     [](R, D d) { return d.throttled_s; }},
    {"vgpu_launches_total", "counter", "Kernel launches of the job on this GPU.",
     [](R, D d) { return as_double(d.launches); }},
    {"vgpu_processes", "gauge", "Processes of the job that hold memory of this GPU.",
     [](R, D d) { return as_double(d.processes); }},
    {"vgpu_region_info", "gauge", "1 for each job and GPU with a limit.", [](R, D) { return 1.0; }},
};

std::string escaped(const std::string &text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result;
}

// Spelled as slurm-job-exporter and dcgm-exporter spell them.
std::string labels(const std::string &host, const RegionView &region, const DeviceView &device) {
  return "{slurmjobid=\"" + escaped(region.job) + "\",user=\"" + escaped(region.user) + "\",gpu=\"" +
         escaped(device.gpu) + "\",UUID=\"" + escaped(device.uuid) + "\",Hostname=\"" + escaped(host) + "\"}";
}

std::string number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string heading(const char *name, const char *type, const char *help) {
  return std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
}

std::string metrics_text(const NodeView &view) {
  std::string text;
  for (const Metric &metric : kMetrics) {
    std::string samples;
    for (const RegionView &region : view.regions) {
      for (const DeviceView &device : region.devices) {
        const std::optional<double> value = metric.value(region, device);
        if (value) samples += metric.name + labels(view.host, region, device) + ' ' + number(*value) + '\n';
      }
    }
    if (!samples.empty()) text += heading(metric.name, metric.type, metric.help) + samples;
  }
  unsigned stale = 0;
  std::size_t unreadable = view.troubles.size();
  for (const RegionView &region : view.regions) {
    stale += region.state == State::stale;
    unreadable += region.state == State::damaged;
  }
  const std::string host = "{Hostname=\"" + escaped(view.host) + "\"} ";
  text += heading("vgpu_stale_regions", "gauge", "Regions all of whose processes are dead.") + "vgpu_stale_regions" +
          host + std::to_string(stale) + '\n';
  text += heading("vgpu_unreadable_regions", "gauge", "Regions that are damaged or of another version.") +
          "vgpu_unreadable_regions" + host + std::to_string(unreadable) + '\n';
  return text;
}

// For dcgm-exporter: a file for each GPU, called by its number, with the job ids on it, one in a line. A GPU that has lost
// its last job keeps an empty file.
Error write_job_files(const std::string &directory, const NodeView &view) {
  std::map<std::string, std::string> files;
  if (ScopedFd folder(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); !folder) {
    return system_error("cannot open %s", directory.c_str());
  }
  for (unsigned gpu = 0; gpu < region::kMaxDevices; ++gpu) {
    const std::string name = std::to_string(gpu);
    if (access((directory + "/" + name).c_str(), F_OK) == 0) files[name] = "";
  }
  for (const RegionView &region : view.regions) {
    for (const DeviceView &device : region.devices) {
      if (!region.is_private) files[device.gpu] += region.job + '\n';
    }
  }
  for (const auto &[gpu, jobs] : files) {
    if (Error error = node::replace_file(directory + "/" + gpu, jobs)) return error;
  }
  return {};
}

// One that is missed shows in the report: it says how much of the job's time the samples cover.
void sample(const NodeView &view) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const double now_s = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  for (const RegionView &region : view.regions) {
    if (region.snapshot && !region.is_private) (void)node::add_sample(region.path, *region.snapshot, now_s);
  }
}

bool has_ranks(const NodeView &view) {
  return std::any_of(view.regions.begin(), view.regions.end(), [](const RegionView &region) {
    return !region.is_private && region.snapshot && region.snapshot->ranks() > 0;
  });
}

// What NVML says is also the occasion to charge sleeping ranks what their contexts really take. `view`: a look, which
// becomes a later one.
void settle(const Options &options, NodeView *view) {
  constexpr timespec kPause = {0, (node::kRest_ms + 10) * 1'000'000L};
  if (!has_ranks(*view)) return add_sm_use(options, view);
  nanosleep(&kPause, nullptr);
  NodeView later = look(options, region::Detail::tokens);
  std::vector<node::GpuProcess> processes;
  const bool known = !list_gpu_processes(options.probe(), &processes);
  unsigned settled = 0;
  for (const RegionView &now : later.regions) {
    for (const RegionView &earlier : view->regions) {
      if (!known || now.is_private || now.path != earlier.path || !now.snapshot || !earlier.snapshot) continue;
      settled += settle_contexts(now.path, *earlier.snapshot, *now.snapshot, processes);
    }
  }
  *view = settled > 0 ? look(options, region::Detail::tokens) : std::move(later);
  if (known) add_sm_use(processes, view);
}

}  // namespace

int metrics(const Options &options) {
  const bool samples = geteuid() == 0;
  NodeView view = look(options, region::Detail::tokens, options.ask_nvml || samples ? Ranks::keep : Ranks::drop);
  if (options.ask_nvml && samples) {
    settle(options, &view);
  } else if (options.ask_nvml) {
    add_sm_use(options, &view);
  }
  if (samples) sample(view);
  const std::string text = metrics_text(view);
  if (!options.output.empty() && options.output != "-") {
    if (const Error error = node::replace_file(options.output, text)) return complain(error);
  } else if (!print(text)) {
    return kRefused;
  }
  if (!options.job_files.empty()) {
    if (const Error error = write_job_files(options.job_files, view)) return complain(error);
  }
  return complain_about(view);
}

}  // namespace vgpu::ctl
