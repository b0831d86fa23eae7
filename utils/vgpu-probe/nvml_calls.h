// The few NVML calls that the probe makes, declared here: their binary interface has been the same since R450, and nvml.h
// is not in every distribution. The library is opened at run time. A test compares this with nvml.h.
#pragma once

namespace vgpu::probe::nvml {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kNotFound = 6;

using Device = struct DeviceHandle *;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Memory2 {  // the second version
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
inline constexpr unsigned kMemory2 = sizeof(Memory2) | 2u << 24;

struct PciInfo {  // the third version
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

struct Process {  // the second version
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct Utilization {
  unsigned pid;
  unsigned long long time_us;  // of the wall clock
  unsigned sm_percent;
  unsigned memory_percent;
  unsigned encoder_percent;
  unsigned decoder_percent;
};

inline constexpr Result kInsufficientSize = 7;
inline constexpr unsigned long long kNoValue = ~0ull;  // NVML_VALUE_NOT_AVAILABLE

inline constexpr int kComputeModeDefault = 0;
inline constexpr unsigned kDriverVersionSize = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE

inline constexpr unsigned kUuidSize = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

struct Calls {
  Result (*init)();
  const char *(*error_string)(Result);
  Result (*device_count)(unsigned *);
  Result (*device_by_index)(unsigned, Device *);
  Result (*uuid)(Device, char *, unsigned);
  Result (*minor_number)(Device, unsigned *);
  Result (*pci_info)(Device, PciInfo *);
  Result (*memory_info)(Device, Memory *);

  // Null before R450.
  Result (*mig_mode)(Device, unsigned *current, unsigned *pending);
  Result (*max_mig_devices)(Device, unsigned *);
  Result (*mig_device_by_index)(Device, unsigned, Device *);
  Result (*gpu_instance_id)(Device, unsigned *);
  Result (*compute_instance_id)(Device, unsigned *);
  Result (*compute_processes)(Device, unsigned *, Process *);
  Result (*device_by_uuid)(const char *, Device *);
  Result (*graphics_processes)(Device, unsigned *, Process *);
  Result (*compute_mode)(Device, int *);
  Result (*gpu_of_mig_device)(Device, Device *);
  Result (*memory_info_2)(Device, Memory2 *);  // null before R510
  Result (*driver_version)(char *, unsigned);
  Result (*utilization)(Device, Utilization *, unsigned *, unsigned long long since_us);

  bool knows_mig() const {
    return mig_mode != nullptr && max_mig_devices != nullptr && mig_device_by_index != nullptr &&
           gpu_instance_id != nullptr && compute_instance_id != nullptr;
  }
};

}  // namespace vgpu::probe::nvml
