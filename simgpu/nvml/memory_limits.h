// The per-cgroup memory limits of driver r615, which no header at hand declares: the structures here follow its public
// description (a name space, which is a cgroup path, a soft and a hard limit; the answer adds what is in use).
#pragma once

#include <nvml.h>

extern "C" {

typedef struct {
  unsigned int version;
  char nameSpace[256];
  unsigned long long softLimit;
  unsigned long long hardLimit;
  unsigned long long currentUsed;  // of the answer only
} nvmlMemoryLimits_v1_t;
#define nvmlMemoryLimits_v1 (unsigned int)(sizeof(nvmlMemoryLimits_v1_t) | (1 << 24U))

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const nvmlMemoryLimits_v1_t *limits);
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlMemoryLimits_v1_t *limits);
}
