// What the limiter makes of a real driver's habits, on a device like hardware, each beside the limiter that others use.
#pragma once

#include "measure.h"

namespace bench {

void measure_capture(const Session &session);
void measure_lazy(const Session &session);
void measure_shapes(const Session &session);
void measure_foreign_pids(const Session &session);
void measure_without_nvml(const Session &session);
void measure_autotune(const Session &session);

}  // namespace bench
