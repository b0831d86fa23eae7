// Which functions of NVML answer, how long they take, and what they say of this process.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>

#include "simgpu/nvml/newer.h"
#include "tables.h"

namespace tables {

namespace {

struct Call {
  const char *name;
  std::function<nvmlReturn_t()> call;
};

struct Room {
  alignas(8) unsigned char bytes[64 * 1024];
};
Room room;

// A list of processes: says whose PIDs, and what memory, it has of this process.
std::string list_remark;
nvmlReturn_t list(const char *name, size_t stride) {
  unsigned count = 256;
  std::memset(&room, 0xEE, sizeof room);
  const nvmlReturn_t result = nvml(name, nvml_device(), &count, static_cast<void *>(&room));
  if (result != NVML_SUCCESS) return result;
  size_t written = sizeof room;
  while (written > 0 && room.bytes[written - 1] == 0xEE) --written;
  if (count > 0 && stride > 16 && written > count * stride) stride = 32;  // as early drivers of the 535 series
  list_remark = format("%u listed, %zu bytes each; we are not", count, stride);
  for (unsigned i = 0; i < count; ++i) {
    nvmlProcessInfo_v1_t entry;
    std::memcpy(&entry, room.bytes + i * stride, sizeof entry);
    if (entry.pid != static_cast<unsigned>(getpid())) continue;
    const bool known = entry.usedGpuMemory != ~0ull;
    list_remark = format("%u listed, %zu bytes each; we are, with %s", count, stride,
                         known ? (mib(entry.usedGpuMemory) + " MiB").c_str() : "no figure");
  }
  return result;
}

std::string remark(const char *name, const nvmlReturn_t result) {
  if (std::strstr(name, "RunningProcesses") == nullptr || result != NVML_SUCCESS) return "";
  return list_remark;
}

std::vector<Call> calls() {
  static nvmlMemory_t memory;
  static nvmlMemory_v2_t memory_v2;
  static nvmlUtilization_t rates;
  static nvmlBAR1Memory_t bar1;
  static nvmlComputeMode_t mode;
  static nvmlEnableState_t state;
  static nvmlDeviceAttributes_t attributes;
  static nvmlPciInfo_t pci;
  static unsigned number, other;
  static char text[256];
  const auto by_name = [](const char *name, auto... arguments) {
    return Call{name, [=] { return nvml(name, arguments...); }};
  };
  const nvmlDevice_t gpu = nvml_device();
  return {
      by_name("nvmlDeviceGetCount_v2", &number),
      {"nvmlDeviceGetMemoryInfo", [=] { return nvml("nvmlDeviceGetMemoryInfo", gpu, &memory); }},
      {"nvmlDeviceGetMemoryInfo_v2",
       [=] {
         memory_v2.version = nvmlMemory_v2;
         return nvml("nvmlDeviceGetMemoryInfo_v2", gpu, &memory_v2);
       }},
      {"nvmlDeviceGetComputeRunningProcesses", [] { return list("nvmlDeviceGetComputeRunningProcesses", 16); }},
      {"nvmlDeviceGetComputeRunningProcesses_v2", [] { return list("nvmlDeviceGetComputeRunningProcesses_v2", 24); }},
      {"nvmlDeviceGetComputeRunningProcesses_v3", [] { return list("nvmlDeviceGetComputeRunningProcesses_v3", 24); }},
      {"nvmlDeviceGetGraphicsRunningProcesses_v3", [] { return list("nvmlDeviceGetGraphicsRunningProcesses_v3", 24); }},
      {"nvmlDeviceGetMPSComputeRunningProcesses_v3",
       [] { return list("nvmlDeviceGetMPSComputeRunningProcesses_v3", 24); }},
      by_name("nvmlSystemGetProcessName", static_cast<unsigned>(getpid()), static_cast<char *>(text), 256u),
      {"nvmlDeviceGetProcessUtilization",
       [=] {
         unsigned count = 256;
         return nvml("nvmlDeviceGetProcessUtilization", gpu, reinterpret_cast<nvmlProcessUtilizationSample_t *>(&room),
                     &count, 0ull);
       }},
      {"nvmlDeviceGetProcessesUtilizationInfo",
       [=] {
         static nvmlProcessesUtilizationInfo_v1_t info;
         info = {};
         info.version = nvmlProcessesUtilizationInfo_v1;
         info.processSamplesCount = 256;
         info.procUtilArray = reinterpret_cast<nvmlProcessUtilizationInfo_v1_t *>(&room);
         return nvml("nvmlDeviceGetProcessesUtilizationInfo", gpu, &info);
       }},
      {"nvmlDeviceGetRunningProcessDetailList",
       [=] {
         static nvmlProcessDetailList_v1_t details;
         details = {};
         details.version = nvmlProcessDetailList_v1;
         details.numProcArrayEntries = 256;
         details.procArray = reinterpret_cast<nvmlProcessDetail_v1_t *>(&room);
         return nvml("nvmlDeviceGetRunningProcessDetailList", gpu, &details);
       }},
      by_name("nvmlDeviceGetUtilizationRates", gpu, &rates),
      {"nvmlDeviceGetSamples",
       [=] {
         unsigned count = 256;
         static nvmlValueType_t type;
         return nvml("nvmlDeviceGetSamples", gpu, NVML_GPU_UTILIZATION_SAMPLES, 0ull, &type, &count,
                     reinterpret_cast<nvmlSample_t *>(&room));
       }},
      by_name("nvmlDeviceGetBAR1MemoryInfo", gpu, &bar1),
      by_name("nvmlDeviceGetComputeMode", gpu, &mode),
      by_name("nvmlDeviceGetMigMode", gpu, &number, &other),
      by_name("nvmlDeviceGetAttributes_v2", gpu, &attributes),
      by_name("nvmlDeviceGetAccountingMode", gpu, &state),
      {"nvmlDeviceGetAccountingPids",
       [=] {
         unsigned count = 1024;
         return nvml("nvmlDeviceGetAccountingPids", gpu, &count, reinterpret_cast<unsigned *>(&room));
       }},
      by_name("nvmlDeviceGetNumGpuCores", gpu, &number),
      by_name("nvmlDeviceGetPciInfo_v3", gpu, &pci),
      by_name("nvmlDeviceGetUUID", gpu, static_cast<char *>(text), 96u),
  };
}

// Returns whether `used` is with or without what the driver reserves: the arithmetic tells.
std::string describe_memory() {
  nvmlMemory_t one{};
  nvmlMemory_v2_t two{};
  two.version = nvmlMemory_v2;
  size_t free = 0, total = 0;
  CU(cuMemGetInfo_v2)(&free, &total);
  Table table(26, {"MiB", "   total", "used", "free", "reserved", "total - free - used"});
  const auto row = [&](const char *name, std::uint64_t all, std::uint64_t used, std::uint64_t rest,
                       const std::string &reserved) {
    table.add(
        {name, mib(all), mib(used), mib(rest), reserved, mib_signed(static_cast<std::int64_t>(all - rest - used))});
  };
  if (nvml("nvmlDeviceGetMemoryInfo", nvml_device(), &one) == NVML_SUCCESS) {
    row("nvmlDeviceGetMemoryInfo", one.total, one.used, one.free, "");
  }
  const bool has_two = nvml("nvmlDeviceGetMemoryInfo_v2", nvml_device(), &two) == NVML_SUCCESS;
  if (has_two) row("nvmlDeviceGetMemoryInfo_v2", two.total, two.used, two.free, mib(two.reserved));
  row("cuMemGetInfo", total, total - free, free, "");
  if (!has_two || two.reserved == 0) return "all there is";
  const bool without = two.total - two.free - two.used >= two.reserved;
  return without ? "without reserved" : "with reserved";
}

// Under which number we are listed, by what was listed before we had a context.
std::string own_number(const std::vector<ListedProcess> &before) {
  std::vector<ListedProcess> now;
  if (!listed_processes(&now)) return "nobody: there is no list";
  if (find_process(now, static_cast<unsigned>(getpid())) != nullptr) return "getpid()";
  for (const ListedProcess &one : now) {
    if (find_process(before, one.pid) == nullptr) return format("%u, which is not getpid()", one.pid);
  }
  return "nobody";
}

void describe_pids() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line) && line.rfind("NSpid:", 0) != 0) {
  }
  std::replace(line.begin(), line.end(), '\t', ' ');
  std::printf("our PIDs: %s\n", line.c_str());
}

}  // namespace

int nvml_calls() {
  std::vector<ListedProcess> before;
  listed_processes(&before);
  make_context();
  sleep_ms(500);  // until we are listed
  Table table(42, {"function", "          answer", "least us", "median us", "most us", ""});
  unsigned answered = 0;
  double longest = 0;
  const std::vector<Call> all = calls();
  for (const Call &one : all) {
    std::vector<double> times;
    nvmlReturn_t result = NVML_SUCCESS;
    const Clock::time_point start = Clock::now();
    while (times.size() < 20 && (times.size() < 3 || seconds_since(start) < 1)) {
      const Clock::time_point called = Clock::now();
      result = one.call();
      times.push_back(seconds_since(called) * 1e6);
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    if (result == NVML_SUCCESS) ++answered, longest = std::max(longest, times.back());
    table.add({one.name, name_of(result), format("%.1f", times.front()), format("%.1f", median),
               format("%.1f", times.back()), remark(one.name, result)});
  }
  std::printf("nvmlDeviceSetMemoryLimits_v1: %s\n\n",
              nvml_function("nvmlDeviceSetMemoryLimits_v1") != nullptr ? "there" : "not in this driver");
  const std::string used = describe_memory(), number = own_number(before);
  describe_pids();
  conclude(format("%u of %zu functions answer, the longest after %.1f ms", answered, all.size(), longest / 1e3));
  conclude("we are listed as " + number);
  conclude("memory v2: used is " + used);
  return answered > 0 ? 0 : 1;
}

}  // namespace tables
