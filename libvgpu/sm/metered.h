// The shape of every hook that launches.
#pragma once

#include "driver/flags.h"
#include "driver/table.h"
#include "launch.h"

namespace vgpu::sm {

// Where there is no limit, nothing but the call.
template <typename Call>
inline CUresult metered(const Work &work, CUstream stream, Call call) {
  if (!driver::launches_are_metered() || pay_from_purse(work)) return call();
  Launch launch(work, stream);
  return launch.finish(call());
}

}  // namespace vgpu::sm
