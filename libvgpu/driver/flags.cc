#include "flags.h"

namespace vgpu::driver {

std::atomic<Flag> region_expected{Flag::undecided};
std::atomic<Flag> launches_metered{Flag::undecided};

}  // namespace vgpu::driver
