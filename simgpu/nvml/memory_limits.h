// The per-cgroup memory limits of driver r615: the name space is a cgroup's path; the answer adds what is in use. The header
// at hand may be too old for them.
#pragma once

#include <nvml.h>

extern "C" {

#ifndef NVML_DEVICE_MEMORY_LIMIT_MAX
#define NVML_DEVICE_MEMORY_LIMIT_MAX (~0ULL)  // as hard limit, with a soft limit of 0: none
typedef struct {
  const char *nameSpace;
  unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;
typedef struct {
  const char *nameSpace;
  unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits);
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits);
#endif
}
