// One rank of the stress test: allocates and frees by every call there is, at random, until it is killed or told to stop.
#pragma once

namespace vgpu::test {

// The process's exit status. Anything but 0: the driver or the library did what they must not, and it was said.
int run_stress_rank(unsigned rank, unsigned seed);

}  // namespace vgpu::test
