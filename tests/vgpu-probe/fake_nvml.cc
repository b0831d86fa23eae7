// An NVML that misbehaves as FAKE_NVML says, for probe_test.cc, and for measure_test.cc a CUDA driver that goes with it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>

#include "utils/vgpu-probe/cuda_calls.h"
#include "utils/vgpu-probe/nvml_calls.h"

namespace {

using vgpu::probe::nvml::Device;
using vgpu::probe::nvml::Memory;
using vgpu::probe::nvml::PciInfo;
using vgpu::probe::nvml::Result;

constexpr Result kNotSupported = 3, kDriverNotLoaded = 9, kGpuIsLost = 15;

bool mode(const char *name) {
  const char *wanted = std::getenv("FAKE_NVML");
  return wanted != nullptr && std::strcmp(wanted, name) == 0;
}

// Handles: 1 and 2 are GPUs, 101, 102, ... are MIG instances of the first.
unsigned long number(Device device) { return reinterpret_cast<unsigned long>(device); }
Device handle(unsigned long value) { return reinterpret_cast<Device>(value); }
bool is_mig(Device device) { return number(device) > 100; }

// Who we are and what we were given, for the test to look at.
void record() {
  const char *path = std::getenv("FAKE_NVML_RECORD");
  if (path == nullptr) return;
  std::ofstream file(path);
  file << getpid() << "\n";
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    file << std::filesystem::read_symlink(entry.path(), ignored).string() << "\n";
  }
  const char *preload = std::getenv("LD_PRELOAD");
  file << "LD_PRELOAD=" << (preload != nullptr ? preload : "") << "\n";
}

constexpr unsigned long long kContext = 300ull << 20;
bool has_context = false;

// What a driver would find in its environment, and where it would look for MPS.
void record_settings() {
  const char *path = std::getenv("FAKE_NVML_RECORD");
  if (path == nullptr) return;
  std::ofstream file(path, std::ios::app);
  for (char **entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "CUDA_", 5) == 0) file << *entry << "\n";
  }
  const char *pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code trouble;
  if (pipes != nullptr && std::filesystem::is_empty(pipes, trouble) && !trouble) file << "no MPS\n";
}

Result give_processes(std::initializer_list<vgpu::probe::nvml::Process> processes, unsigned *count,
                      vgpu::probe::nvml::Process *list) {
  if (*count < processes.size()) {
    *count = static_cast<unsigned>(processes.size());
    return vgpu::probe::nvml::kInsufficientSize;
  }
  *count = 0;
  for (const auto &process : processes) list[(*count)++] = process;
  return 0;
}

}  // namespace

extern "C" {

Result nvmlInit_v2() {
  record();
  if (mode("fail")) return kDriverNotLoaded;
  if (mode("crash")) {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer may have its own
    raise(SIGSEGV);
  }
  if (mode("exit")) std::exit(3);
  if (mode("chatter")) {
    std::puts("error 2 vgpu: this is not an answer");
    std::fflush(stdout);
  }
  if (mode("hang")) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    for (;;) pause();
  }
  return vgpu::probe::nvml::kSuccess;
}

const char *nvmlErrorString(Result result) {
  switch (result) {
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kGpuIsLost:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

Result nvmlDeviceGetCount_v2(unsigned *count) {
  if (mode("count")) return kGpuIsLost;
  *count = mode("none") ? 0 : mode("many") ? 65 : 2;
  return 0;
}

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
  if (mode("lost") && index == 0) return kGpuIsLost;
  *device = handle(index + 1);
  return 0;
}

Result nvmlDeviceGetUUID(Device device, char *uuid, unsigned length) {
  std::snprintf(uuid, length, "%s-%08lu", is_mig(device) ? "MIG" : "GPU", number(device));
  return 0;
}

Result nvmlDeviceGetMinorNumber(Device device, unsigned *minor) {
  if (is_mig(device)) return kNotSupported;
  *minor = static_cast<unsigned>(number(device)) + 6;
  return 0;
}

Result nvmlDeviceGetPciInfo_v3(Device device, PciInfo *pci) {
  if (is_mig(device)) return kNotSupported;
  *pci = {};
  pci->domain = 0x10000;
  pci->bus = 0xab;
  pci->device = static_cast<unsigned>(number(device));
  return 0;
}

Result nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
  if (mode("lost-late") && number(device) == 2) return kGpuIsLost;
  memory->total = is_mig(device) ? 5ull << 30 : 40ull << 30;
  memory->used = (512ull << 20) + (has_context ? kContext : 0);
  return 0;
}

Result nvmlDeviceGetMemoryInfo_v2(Device device, vgpu::probe::nvml::Memory2 *memory) {
  if (!mode("reserve") && !mode("all-reserved")) return kNotSupported;
  if (memory->version != vgpu::probe::nvml::kMemory2) return 25;
  memory->total = number(device) == 1 ? 40ull << 30 : 45ull << 30;  // the second is larger than the first version says
  memory->reserved = mode("reserve") ? 600ull << 20 : memory->total;
  return 0;
}

Result nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
  unsigned value = 0;
  if (std::sscanf(uuid, "%*3s-%u", &value) != 1) return vgpu::probe::nvml::kNotFound;
  *device = handle(value);
  return 0;
}

Result nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device, Device *gpu) {
  *gpu = handle(1);
  return 0;
}

Result nvmlSystemGetDriverVersion(char *version, unsigned length) {
  std::snprintf(version, length, "%s", mode("nameless") ? "" : "580.95.05");
  return 0;
}

Result nvmlDeviceGetComputeMode(Device device, int *compute_mode) {
  if (is_mig(device)) return kNotSupported;
  *compute_mode = mode("exclusive") ? 3 : 0;
  return 0;
}

Result nvmlDeviceGetComputeRunningProcesses_v2(Device, unsigned *count, vgpu::probe::nvml::Process *list) {
  const auto self = static_cast<unsigned>(getpid());
  if (mode("silent")) return kNotSupported;
  if (const char *given = std::getenv("FAKE_NVML_PROCESS")) {  // PID BYTES
    vgpu::probe::nvml::Process process = {};
    std::sscanf(given, "%u %llu", &process.pid, &process.used_memory);
    return give_processes({process}, count, list);
  }
  if (mode("neighbour")) return give_processes({{1, 5, 0, 0}}, count, list);
  if (!has_context || mode("absent")) return give_processes({}, count, list);
  if (mode("joined")) return give_processes({{self, kContext, 0, 0}, {1, 5, 0, 0}}, count, list);
  if (mode("zero")) return give_processes({{self, 0, 0, 0}}, count, list);
  if (mode("no-value")) return give_processes({{self, vgpu::probe::nvml::kNoValue, 0, 0}}, count, list);
  static unsigned long long asked = 0;
  return give_processes({{self, mode("growing") ? kContext + ++asked : kContext, 0, 0}}, count, list);
}

Result nvmlDeviceGetGraphicsRunningProcesses_v2(Device, unsigned *count, vgpu::probe::nvml::Process *list) {
  if (mode("desktop")) return give_processes({{1, 5, 0, 0}}, count, list);
  return give_processes({}, count, list);
}

int cuInit(unsigned) {
  record_settings();
  return mode("no-cuda") ? 100 : 0;
}
int cuGetErrorName(int, const char **name) {
  *name = "CUDA_ERROR_NO_DEVICE";
  return 0;
}
int cuDeviceGetCount(int *count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int *device, int) {
  *device = 0;
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t *bytes, int) {
  *bytes = 39ull << 30;
  return 0;
}
int cuDevicePrimaryCtxRetain(vgpu::probe::cuda::Context *context, int) {
  if (mode("hang-in-cuda")) pause();
  *context = nullptr;
  has_context = true;
  return 0;
}
int cuCtxSetCurrent(vgpu::probe::cuda::Context) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuMemGetAllocationGranularity(std::size_t *bytes, const vgpu::probe::cuda::AllocationProperties *, int) {
  *bytes = 4 << 20;
  return 0;
}

Result nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
  if (!mode("mig")) return kNotSupported;
  *current = number(device) == 1;
  *pending = 1;
  return 0;
}

Result nvmlDeviceGetMaxMigDeviceCount(Device, unsigned *count) {
  *count = 7;
  return 0;
}

Result nvmlDeviceGetMigDeviceHandleByIndex(Device, unsigned index, Device *mig) {
  if (index % 2 != 0) return vgpu::probe::nvml::kNotFound;
  *mig = handle(101 + index);
  return 0;
}

Result nvmlDeviceGetGpuInstanceId(Device device, unsigned *id) {
  *id = static_cast<unsigned>(number(device)) - 100;
  return 0;
}

Result nvmlDeviceGetComputeInstanceId(Device, unsigned *id) {
  *id = 0;
  return 0;
}

}  // extern "C"
