// An NVML that misbehaves as FAKE_NVML says, for probe_test.cc.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

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
