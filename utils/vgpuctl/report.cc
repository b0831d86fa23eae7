// vgpuctl report: a job that has ended, from the line that its epilog left; in sentences, as seff does.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "columns.h"
#include "commands.h"
#include "node/values.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

using Json = nlohmann::json;

// The last line about the job: a job that was requeued has several.
Error find_line(const Options &options, Json *record, std::string *line) {
  bool readable = false;
  for (const char *suffix : {"", ".1"}) {
    std::ifstream file(options.record + suffix);
    readable = readable || file.is_open();
    std::string found;
    Json last;
    for (std::string text; std::getline(file, text);) {
      Json parsed = Json::parse(text, nullptr, false);
      // A line that was cut off when the disk was full is no reason to know nothing of the others.
      if (!parsed.is_object() || !parsed.value("job", Json()).is_number_unsigned()) continue;
      if (std::to_string(parsed["job"].get<std::uint64_t>()) != options.job) continue;
      found = text;
      last = std::move(parsed);
    }
    if (found.empty()) continue;
    *record = std::move(last);
    *line = std::move(found);
    return {};
  }
  if (!readable) {
    return make_error(Fault::not_found, "vgpu: there is no record of ended jobs in %s; see record= in spank_vgpu(8)",
                      options.record.c_str());
  }
  return make_error(Fault::not_found, "vgpu: job %s is not in %s: it still runs, had no limits, or is too long ago",
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

std::string advice(double efficiency, std::uint64_t refused, std::uint64_t limit, std::uint64_t peak) {
  constexpr double kLittle = 0.5;
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  if (refused > 0) {
    return "Advice: " + std::string(refused == 1 ? "an allocation was" : "allocations were") +
           " refused; ask for more than --gpu-mem=" + format_bytes(limit) + "\n";
  }
  if (efficiency >= kLittle || peak == 0) return "";
  const std::uint64_t enough = std::max(kGiB, (peak + peak / 4 + kGiB - 1) / kGiB * kGiB);
  if (enough >= limit) return "";
  return "Advice: --gpu-mem=" + format_bytes(enough) + " would have been enough\n";
}

std::string device_sentences(const Json &device) {
  const auto limit = device.at("memory_limit_bytes").get<std::uint64_t>();
  const auto peak = device.at("memory_peak_bytes").get<std::uint64_t>();
  const auto refused = device.at("refused").get<std::uint64_t>();
  const double efficiency = limit > 0 ? static_cast<double>(peak) / static_cast<double>(limit) : 0;
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.2f%%", 100 * efficiency);
  std::string text = "GPU: " + device.at("uuid").get<std::string>() + '\n';
  text += "GPU Memory Peak: " + format_bytes(peak) + '\n';
  text += "GPU Memory Efficiency: " + std::string(percent) + " of " + format_bytes(limit) + '\n';
  text += "Refused Allocations: " + std::to_string(refused) + '\n';
  text += "SM Limit: " + std::to_string(device.at("sm_limit_percent").get<unsigned>()) + "%\n";
  if (device.at("throttled_seconds").is_number()) {
    text += "Throttled: " + seconds_text(device["throttled_seconds"].get<double>()) + ", " +
            std::to_string(device.at("launches").get<std::uint64_t>()) + " kernel launches\n";
  }
  return text + advice(efficiency, refused, limit, peak);
}

std::string sentences(const Json &record) {
  const auto created = record.at("created").get<std::uint64_t>();
  const auto ended = record.at("ended").get<std::uint64_t>();
  std::string text = "Job ID: " + std::to_string(record.at("job").get<std::uint64_t>()) + '\n';
  text += "Node: " + record.at("node").get<std::string>() + '\n';
  text += "User: " + user_name(record.at("uid").get<uid_t>()) + '\n';
  text += "Wall-clock time with GPU limits: " + clock_text(ended > created ? ended - created : 0) + '\n';
  for (const Json &device : record.at("devices")) text += device_sentences(device);
  return text;
}

}  // namespace

int report(const Options &options) {
  Json record;
  std::string line;
  if (const Error error = find_line(options, &record, &line)) return complain(error);
  try {
    return print(options.json ? line + '\n' : sentences(record)) ? kOk : kRefused;
  } catch (const Json::exception &) {
    return complain(make_error(Fault::corrupt, "vgpu: what %s says of job %s is damaged or of another version",
                               options.record.c_str(), options.job.c_str()));
  }
}

}  // namespace vgpu::ctl
