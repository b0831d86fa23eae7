#include "processes.h"

#include <charconv>
#include <sstream>

namespace vgpu::node {

namespace {

constexpr char kFirstLine[] = "vgpu-processes 3";

bool read_share(const std::string &text, int *percent) {
  if (text == "-") return true;
  const char *end = text.data() + text.size();
  const auto [stopped, reason] = std::from_chars(text.data(), end, *percent);
  return reason == std::errc() && stopped == end && *percent >= 0 && *percent <= 100;
}

}  // namespace

std::string format_processes(const std::vector<GpuProcess> &processes, const MemoryInUse &in_use) {
  std::ostringstream text;
  text << kFirstLine << '\n';
  for (const auto &[uuid, bytes] : in_use) text << "device " << uuid << ' ' << bytes << '\n';
  for (const GpuProcess &process : processes) {
    text << "process " << process.uuid << ' ' << process.pid << ' ' << process.bytes << ' ';
    if (process.sm_percent < 0) {
      text << "-\n";
    } else {
      text << process.sm_percent << '\n';
    }
  }
  text << "end " << processes.size() << '\n';
  return text.str();
}

Error parse_processes(const std::string &where, std::string_view text, std::vector<GpuProcess> *processes,
                      MemoryInUse *in_use) {
  std::istringstream lines{std::string(text)};
  std::vector<GpuProcess> found;
  MemoryInUse memory;
  std::string line;
  bool complete = false;
  bool good = std::getline(lines, line) && line == kFirstLine;
  while (good && !complete && std::getline(lines, line)) {
    std::istringstream words(line);
    std::string key;
    std::size_t count = 0;
    GpuProcess process;
    words >> key;
    if (key == "end") {
      complete = words >> count && count == found.size() && words.peek() == EOF;
      good = complete;
    } else if (key == "device") {
      std::uint64_t bytes = 0;
      good = words >> process.uuid >> bytes && words.peek() == EOF && memory.emplace(process.uuid, bytes).second;
    } else {
      std::string share;
      good = key == "process" && words >> process.uuid >> process.pid >> process.bytes >> share && process.pid > 0 &&
             words.peek() == EOF && read_share(share, &process.sm_percent);
      if (good) found.push_back(std::move(process));
    }
  }
  if (!good || !complete) {
    return make_error(Fault::foreign, "%s does not list processes as vgpu-probe does; install slurm-vgpu anew",
                      where.c_str());
  }
  *processes = std::move(found);
  if (in_use != nullptr) *in_use = std::move(memory);
  return {};
}

Error list_gpu_processes(const ProbeOptions &options, std::vector<GpuProcess> *processes) {
  std::string answer;
  if (Error error = run_probe(options, {"--processes"}, &answer)) return error;
  return parse_processes("the probe", answer, processes);
}

}  // namespace vgpu::node
