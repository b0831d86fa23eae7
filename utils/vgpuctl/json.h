// Regions as JSON; docs/vgpuctl.schema.json says what is in there. Sizes are bytes, what is not known is null. And what an
// epilog wrote of an ended job, read back.
//
// The compiler needs seconds to read the JSON library: only json.cc includes it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "view.h"

namespace vgpu::ctl {

std::string list_json(const NodeView &view);
std::string show_json(const std::string &host, const RegionView &region);

struct EndedDevice {
  std::string uuid;
  std::uint64_t limit;  // at the end
  std::uint64_t peak;
  std::uint64_t refused;
  // Records of the first release know nothing of changes and averages.
  std::uint64_t first_limit;    // what the job had asked for
  std::uint64_t highest_limit;  // at any time
  std::uint64_t refused_since;  // the last change
  std::optional<std::uint64_t> average;
  std::uint64_t sampled_s;  // for the average
  unsigned sm_percent;
  std::optional<double> sm_average;  // percent
  std::optional<double> throttled_s;
  std::uint64_t launches;  // if it is known how long they were throttled
};

struct EndedJob {
  std::uint64_t job;
  std::string node;
  uid_t uid;
  std::uint64_t created, ended;
  std::vector<EndedDevice> devices;
};

// The job that a line of the record is about; nothing if it was cut off, or is no such line.
std::optional<std::uint64_t> recorded_job(const std::string &line);
// Nothing if it is damaged, or of another version.
std::optional<EndedJob> parse_record(const std::string &line);

}  // namespace vgpu::ctl
