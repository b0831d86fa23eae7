// How late NVML shows what another process does; and a watcher for the length of a measurement.
#include <cstdio>
#include <functional>

#include "child.h"
#include "tables.h"

namespace tables {

namespace {

constexpr double kPatience_s = 2;

// Milliseconds until it is so; negative if it never was.
double until(const std::function<bool()> &is_so) {
  const Clock::time_point start = Clock::now();
  do {
    if (is_so()) return seconds_since(start) * 1e3;
    sleep_ms(1);
  } while (seconds_since(start) < kPatience_s);
  return -1;
}

std::string moment(double ms) { return ms < 0 ? format("not within %.0f s", kPatience_s) : format("%.1f ms", ms); }

std::uint64_t used() {
  std::uint64_t bytes = 0;
  device_used(&bytes);
  return bytes;
}

// 0 if it is not listed, or without a figure.
std::uint64_t held_by(unsigned pid) {
  std::vector<ListedProcess> processes;
  listed_processes(&processes);
  const ListedProcess *found = find_process(processes, pid);
  return found != nullptr && found->bytes != ~std::uint64_t{0} ? found->bytes : 0;
}

bool is_listed(unsigned pid) {
  std::vector<ListedProcess> processes;
  return listed_processes(&processes) && find_process(processes, pid) != nullptr;
}

unsigned utilisation() {
  nvmlUtilization_t rates{};
  return nvml("nvmlDeviceGetUtilizationRates", nvml_device(), &rates) == NVML_SUCCESS ? rates.gpu : 0;
}

bool has_sample(unsigned pid) {
  nvmlProcessUtilizationSample_t samples[256];
  unsigned count = 256;
  if (nvml("nvmlDeviceGetProcessUtilization", nvml_device(), static_cast<nvmlProcessUtilizationSample_t *>(samples),
           &count, 0ull) != NVML_SUCCESS) {
    return false;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (samples[i].pid == pid && samples[i].smUtil > 0) return true;
  }
  return false;
}

}  // namespace

int nvml_moments() {
  char self[] = "/proc/self/exe", verb[] = "steps";
  char *const command[] = {self, verb, nullptr};
  Child child(command);
  unsigned pid = 0;
  std::string region, answer;
  constexpr std::uint64_t kPiece = 64 << 20;
  const std::uint64_t before = used();
  if (!child.greet(&pid, &region) || !child.ask("init", &answer) || !child.ask("context", &answer)) {
    conclude("another process did not get a context");
    return 1;
  }
  Table table(46, {"after", "until NVML shows it"});
  const double listed = until([&] { return is_listed(pid); });
  table.add({"a context was made: the process is listed", moment(listed)});
  table.add({"... and has a figure", moment(until([&] { return held_by(pid) > 0; }))});
  table.add({"... and the device holds more", moment(until([&] { return used() > before; }))});
  sleep_ms(300);
  const std::uint64_t process = held_by(pid), device = used();
  child.ask("malloc 67108864", &answer);
  const double device_late = until([&] { return used() >= device + kPiece; });
  table.add({"64 MiB were allocated: the device holds them", moment(device_late)});
  table.add({"... and the process", moment(until([&] { return held_by(pid) >= process + kPiece; }))});
  child.ask("free", &answer);
  table.add({"they were freed: the device has them back", moment(until([&] { return used() < device + kPiece; }))});
  child.ask("module", &answer);
  child.send("busy 1000");
  table.add({"kernels started: the device is busy", moment(until([&] { return utilisation() > 0; }))});
  table.add({"... and the process has a sample", moment(until([&] { return has_sample(pid); }))});
  child.answer(&answer);
  table.add({"they ended: the device is idle", moment(until([&] { return utilisation() == 0; }))});
  child.end();
  table.add({"the process ended: it is not listed", moment(until([&] { return !is_listed(pid); }))});
  table.add({"... and the device has its memory back", moment(until([&] { return used() <= before; }))});
  std::printf("a row with ... counts from the one before it\n");
  conclude(
      format("until a new process is listed: %s, new memory: %s", moment(listed).c_str(), moment(device_late).c_str()));
  return 0;
}

int nvml_watch(double seconds) {
  const Clock::time_point start = Clock::now();
  double sum = 0;
  unsigned count = 0;
  do {
    sum += utilisation();
    ++count;
    sleep_ms(20);
  } while (seconds_since(start) < seconds);
  std::printf("%.1f\n", sum / count);
  return 0;
}

}  // namespace tables
