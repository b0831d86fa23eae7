#include "steps.h"

#ifdef VGPU_STEPS
namespace vgpu::region {

void (*step_hook)(Step) = nullptr;

const char *step_name(Step step) {
  static const char *const names[] = {
#define VGPU_STEP_NAME(name) #name,
      VGPU_STEPS_LIST(VGPU_STEP_NAME)
#undef VGPU_STEP_NAME
  };
  return names[static_cast<int>(step)];
}

}  // namespace vgpu::region
#endif
