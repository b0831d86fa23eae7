// The shape of every hook that launches.
#pragma once

#include "sm/launch.h"
#include "table.h"

namespace vgpu {

// Where there is no limit, nothing but the call.
template <typename Call>
inline CUresult metered(const sm::Work &work, CUstream stream, Call call) {
  if (!launches_are_metered() || sm::pay_from_purse(work)) return call();
  sm::Launch launch(work, stream);
  return launch.finish(call());
}

}  // namespace vgpu
