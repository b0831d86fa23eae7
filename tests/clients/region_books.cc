// Prints a region's books, without the ranks that are gone. A line for each device: bytes used, limit and peak, and how
// many allocations were refused.
#include <cinttypes>
#include <cstdio>

#include "region/region.h"

int main(int argc, char **argv) {
  using namespace vgpu;
  using namespace vgpu::region;
  if (argc != 2) {
    std::fprintf(stderr, "usage: region_books DIRECTORY\n");
    return 2;
  }
  Snapshot snapshot;
  Error error = sweep_region(argv[1], Trust::root_or_self, nullptr);
  if (!error) error = Snapshot::read(argv[1], Trust::root_or_self, Detail::memory, &snapshot);
  if (error) {
    std::fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  for (unsigned dev = 0; dev < snapshot.ndev(); ++dev) {
    const DeviceSnapshot &device = snapshot.device(dev);
    std::printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", device.memory_used, device.memory_limit,
                device.memory_peak, device.refused);
  }
  return 0;
}
