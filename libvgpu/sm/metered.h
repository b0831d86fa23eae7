// What every hook that launches looks like: pay for the launch, launch, and mark what it took.
#pragma once

#include "driver/flags.h"
#include "driver/table.h"
#include "launch.h"

namespace vgpu::sm {

// Without a limit there is only the call.
template <typename Call>
inline CUresult metered(const Work &work, CUstream stream, Call call) {
  if (!driver::launches_are_metered() || pay(work, stream)) return call();
  Launch launch(work, stream);
  return launch.finish(call());
}

}  // namespace vgpu::sm
