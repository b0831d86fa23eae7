// vgpuctl report: a job that has ended, from the line that its epilog left; in sentences, as seff does.
#include <algorithm>
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

// What the record says of one GPU. Records of the first release know nothing of changes and averages.
struct Use {
  explicit Use(const Json &device)
      : limit(device.at("memory_limit_bytes")),
        peak(device.at("memory_peak_bytes")),
        refused(device.at("refused")),
        first_limit(device.value("first_memory_limit_bytes", limit)),
        highest_limit(std::max<std::uint64_t>(device.value("highest_memory_limit_bytes", limit), 1)),
        refused_since(device.value("refused_since_change", refused)) {}

  bool was_changed() const { return first_limit != limit || highest_limit > limit; }
  double efficiency() const { return static_cast<double>(peak) / static_cast<double>(highest_limit); }

  std::uint64_t limit;  // at the end
  std::uint64_t peak;
  std::uint64_t refused;
  std::uint64_t first_limit;    // what the job had asked for
  std::uint64_t highest_limit;  // at any time
  std::uint64_t refused_since;  // the last change
};

// What to ask for next time. A limit that was raised on the way says more than the one that the job began with.
std::string advice(const Use &use) {
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

std::string average_sentence(const Json &device, std::uint64_t elapsed) {
  constexpr std::uint64_t kMuch = 95;  // percent of the job's time
  const Json average = device.value("memory_average_bytes", Json());
  if (!average.is_number()) return "GPU Memory Average: not sampled\n";
  const auto sampled = std::min(device.at("sampled_seconds").get<std::uint64_t>(), elapsed);
  std::string text = "GPU Memory Average: " + node::format_bytes(average.get<std::uint64_t>());
  if (100 * sampled < kMuch * elapsed) text += ", of " + clock_text(sampled) + " that were sampled";
  return text + '\n';
}

std::string sm_sentences(const Json &device) {
  const Json average = device.value("sm_average_percent", Json());
  std::string text = "SM Limit: " + std::to_string(device.at("sm_limit_percent").get<unsigned>()) + "%\n";
  if (average.is_number()) text += "SM Average: " + percent_of(average.get<double>() / 100) + " of the GPU\n";
  if (device.at("throttled_seconds").is_number()) {
    text += "Throttled: " + seconds_text(device["throttled_seconds"].get<double>()) + ", " +
            std::to_string(device.at("launches").get<std::uint64_t>()) + " kernel launches\n";
  }
  return text;
}

std::string device_sentences(const Json &device, std::uint64_t elapsed) {
  const Use use(device);
  std::string text = "GPU: " + device.at("uuid").get<std::string>() + '\n';
  text += "GPU Memory Peak: " + node::format_bytes(use.peak) + '\n';
  text += average_sentence(device, elapsed);
  text +=
      "GPU Memory Efficiency: " + percent_of(use.efficiency()) + " of " + node::format_bytes(use.highest_limit) + '\n';
  if (use.was_changed()) {
    text += "GPU Memory Limit: " + node::format_bytes(use.first_limit) + " at first, " + node::format_bytes(use.limit) +
            " at the end\n";
  }
  text += "Refused Allocations: " + std::to_string(use.refused) + '\n';
  return text + sm_sentences(device) + advice(use);
}

std::string sentences(const Json &record) {
  const auto created = record.at("created").get<std::uint64_t>();
  const auto ended = record.at("ended").get<std::uint64_t>();
  std::string text = "Job ID: " + std::to_string(record.at("job").get<std::uint64_t>()) + '\n';
  text += "Node: " + record.at("node").get<std::string>() + '\n';
  text += "User: " + user_name(record.at("uid").get<uid_t>()) + '\n';
  const std::uint64_t elapsed = ended > created ? ended - created : 0;
  text += "Wall-clock time with GPU limits: " + clock_text(elapsed) + '\n';
  for (const Json &device : record.at("devices")) text += device_sentences(device, elapsed);
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
    return complain(make_error(Fault::corrupt, "what %s says of job %s is damaged or of another version",
                               options.record.c_str(), options.job.c_str()));
  }
}

}  // namespace vgpu::ctl
