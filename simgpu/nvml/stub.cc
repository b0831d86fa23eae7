#include "simgpu/nvml/stub.h"

#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>

#include "simgpu/nvml/session.h"

namespace simgpu {

int nvml_not_supported(const char *name) {
  static const bool logging = getenv("SIMGPU_LOG") != nullptr;
  if (logging) fprintf(stderr, "simgpu: %s: not simulated\n", name);
  return Session::current() != nullptr ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
}

}  // namespace simgpu
