// vgpuctl report: a job that has ended, from the line that its epilog left; in sentences, as seff does.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "columns.h"
#include "commands.h"
#include "json.h"
#include "node/values.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

// The last line about the job: a job that was requeued has several.
Error find_line(const Options &options, std::string *line) {
  bool readable = false;
  for (const char *suffix : {"", ".1"}) {
    std::ifstream file(options.record + suffix);
    readable = readable || file.is_open();
    for (std::string text; std::getline(file, text);) {
      // A line that was cut off when the disk was full is no reason to know nothing of the others.
      const std::optional<std::uint64_t> job = recorded_job(text);
      if (job && std::to_string(*job) == options.job) *line = text;
    }
    if (!line->empty()) return {};
  }
  if (!readable) {
    return make_error(Fault::not_found, "there is no record of ended jobs in %s; see record= in spank_vgpu(8)",
                      options.record.c_str());
  }
  return make_error(Fault::not_found, "job %s is not in %s: it still runs, had no limits, or is too long ago",
                    options.job.c_str(), options.record.c_str());
}

std::string clock_text(std::uint64_t seconds) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%02u:%02u:%02u",
                seconds >= 86400 ? (std::to_string(seconds / 86400) + "-").c_str() : "",
                static_cast<unsigned>(seconds / 3600 % 24), static_cast<unsigned>(seconds / 60 % 60),
                static_cast<unsigned>(seconds % 60));
  return text;
}

std::string percent_of(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", 100 * ratio);
  return text;
}

bool was_changed(const EndedDevice &use) { return use.first_limit != use.limit || use.highest_limit > use.limit; }

// What to ask for next time. A limit that was raised on the way says more than the one that the job began with.
std::string advice(const EndedDevice &use) {
  constexpr double kLittle = 0.5;
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  if (use.refused_since > 0 && use.limit < use.first_limit) {
    return "Advice: allocations were refused after the limit was lowered from " + node::format_bytes(use.first_limit) +
           " to " + node::format_bytes(use.limit) + "; ask the administrator why\n";
  }
  if (use.refused_since > 0) {
    return "Advice: " + std::string(use.refused_since == 1 ? "an allocation was" : "allocations were") +
           " refused; ask for more than --gpu-mem=" + node::format_bytes(use.limit) + "\n";
  }
  if (use.peak == 0) return "";
  const std::uint64_t roomy = std::max(kGiB, (use.peak + use.peak / 4 + kGiB - 1) / kGiB * kGiB);
  const std::uint64_t enough = std::min(roomy, use.highest_limit);
  if (use.refused > 0 || use.peak > use.first_limit) {
    return "Advice: " + node::format_bytes(use.first_limit) +
           " was too little until the limit was raised; ask for --gpu-mem=" + node::format_bytes(enough) + "\n";
  }
  const double of_first =
      static_cast<double>(use.peak) / static_cast<double>(std::max<std::uint64_t>(use.first_limit, 1));
  if (of_first >= kLittle || enough >= use.first_limit) return "";
  return "Advice: --gpu-mem=" + node::format_bytes(enough) + " would have been enough\n";
}

std::string average_sentence(const EndedDevice &use, std::uint64_t elapsed) {
  constexpr std::uint64_t kMuch = 95;  // percent of the job's time
  if (!use.average) return "GPU Memory Average: not sampled\n";
  const std::uint64_t sampled = std::min(use.sampled_s, elapsed);
  std::string text = "GPU Memory Average: " + node::format_bytes(*use.average);
  if (100 * sampled < kMuch * elapsed) text += ", of " + clock_text(sampled) + " that were sampled";
  return text + '\n';
}

std::string sm_sentences(const EndedDevice &use) {
  std::string text = "SM Limit: " + std::to_string(use.sm_percent) + "%\n";
  if (use.sm_average) text += "SM Average: " + percent_of(*use.sm_average / 100) + " of the GPU\n";
  if (use.throttled_s) {
    text += "Throttled: " + seconds_text(*use.throttled_s) + ", " + std::to_string(use.launches) + " kernel launches\n";
  }
  return text;
}

std::string device_sentences(const EndedDevice &use, std::uint64_t elapsed) {
  const double efficiency = static_cast<double>(use.peak) / static_cast<double>(use.highest_limit);
  std::string text = "GPU: " + use.uuid + '\n';
  text += "GPU Memory Peak: " + node::format_bytes(use.peak) + '\n';
  text += average_sentence(use, elapsed);
  text += "GPU Memory Efficiency: " + percent_of(efficiency) + " of " + node::format_bytes(use.highest_limit) + '\n';
  if (was_changed(use)) {
    text += "GPU Memory Limit: " + node::format_bytes(use.first_limit) + " at first, " + node::format_bytes(use.limit) +
            " at the end\n";
  }
  text += "Refused Allocations: " + std::to_string(use.refused) + '\n';
  return text + sm_sentences(use) + advice(use);
}

std::string sentences(const EndedJob &job) {
  std::string text = "Job ID: " + std::to_string(job.job) + '\n';
  text += "Node: " + job.node + '\n';
  text += "User: " + user_name(job.uid) + '\n';
  const std::uint64_t elapsed = job.ended > job.created ? job.ended - job.created : 0;
  text += "Wall-clock time with GPU limits: " + clock_text(elapsed) + '\n';
  for (const EndedDevice &device : job.devices) text += device_sentences(device, elapsed);
  return text;
}

}  // namespace

int report(const Options &options) {
  std::string line;
  if (const Error error = find_line(options, &line)) return complain(error);
  if (options.json) return print(line + '\n') ? kOk : kRefused;
  const std::optional<EndedJob> job = parse_record(line);
  if (!job) {
    return complain(make_error(Fault::corrupt, "what %s says of job %s is damaged or of another version",
                               options.record.c_str(), options.job.c_str()));
  }
  return print(sentences(*job)) ? kOk : kRefused;
}

}  // namespace vgpu::ctl
