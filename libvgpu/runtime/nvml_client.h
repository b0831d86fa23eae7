// Our own use of NVML: opened when first needed, never closed, and seen by nobody.
#pragma once

#include <cstdint>

#include "driver/cuda_api.h"
#include "nvml_list.h"

namespace vgpu::runtime {

// Who computes on a device of the region, and what they hold there. However many there are.
class NvmlProcesses {
 public:
  unsigned count() const { return list_.count(); }
  unsigned pid(unsigned index) const { return list_.pid(index); }
  std::uint64_t bytes(unsigned index) const;  // kBytesUnknown, or 0: NVML does not say
  bool find(unsigned pid, std::uint64_t *bytes) const;

  static constexpr std::uint64_t kBytesUnknown = static_cast<std::uint64_t>(NVML_VALUE_NOT_AVAILABLE);

 private:
  friend bool list_processes(unsigned dev, NvmlProcesses *processes);

  NvmlList list_{kShape<nvmlProcessInfo_v1_t>};
};

// Opens NVML, which takes its time once. What is measured afterwards is NVML's answers alone.
void open_nvml(unsigned dev);
// False: no NVML, or one that cannot tell. Opens NVML when first called: to be called only when the process has, had, or
// is about to have a context.
bool list_processes(unsigned dev, NvmlProcesses *processes);

// How busy a process kept a device in the last of NVML's windows in which it did at all.
struct NvmlSample {
  unsigned pid = 0;
  unsigned sm_percent = 0;
  unsigned long long ended_us = 0;  // the window, on NVML's clock
};
struct NvmlSamples {
  static constexpr unsigned kMost = 512;

  NvmlSample entries[kMost];
  unsigned count = 0;
};

enum class UtilisationAnswer : std::uint8_t {
  samples,      // there are some
  nothing_new,  // nobody was busy since
  unsupported,  // NVML does not tell it of this device
  no_nvml,      // there is none, or it does not know the device
};
// Of windows that ended after `since_us`. Entries that cannot be true are left out. As above, opens NVML.
UtilisationAnswer list_utilisation(unsigned dev, unsigned long long since_us, NvmlSamples *samples);

}  // namespace vgpu::runtime
