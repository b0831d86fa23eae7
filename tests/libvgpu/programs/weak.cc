// A program that is not linked with the driver and looks whether somebody else brought it, by a weak reference.
#include <cuda.h>

#include <cstdio>

extern "C" __attribute__((weak)) CUresult cuInit(unsigned);

int main() {
  CUresult (*volatile init)(unsigned) = cuInit;
  std::printf("%d\n", init != nullptr ? static_cast<int>(init(0)) : -1);
  return 0;
}
