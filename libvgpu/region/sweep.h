// Finding ranks that are gone and giving back what they held.
#pragma once

#include "layout.h"
#include "liveness.h"

namespace vgpu::region {

// Looks at every slot that may hold memory on `dev` (kAllDevices: at every slot in use) and returns how many it freed.
unsigned sweep(const Usage &usage, LivenessCheck &liveness, unsigned dev);

}  // namespace vgpu::region
