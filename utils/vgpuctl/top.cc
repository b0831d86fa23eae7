#include "commands.h"
namespace vgpu::ctl {
int top(const Options &) { return 1; }
}  // namespace vgpu::ctl
