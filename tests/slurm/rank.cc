// A rank without CUDA: takes a slot in the region it was given, reserves memory there, and holds it until told to stop.
//
//   rank BYTES [SECONDS]      prints "granted" or "refused" (or what is wrong), then holds for SECONDS (default 0)
//   rank BYTES with N FILE    the same, but holds until N ranks have been answered: each adds a byte to FILE
//   rank --show [DIRECTORY]   prints the region: a line for the job, one per device, one per rank
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "region/region.h"

namespace {

using namespace vgpu;
using namespace vgpu::region;

int complain(const Error &error) {
  std::puts(error.text);
  return 1;
}

int show(const char *directory) {
  Snapshot region;
  if (Error error = Snapshot::read(directory, Trust::root, Detail::liveness, &region)) return complain(error);
  std::printf("job=%" PRIu64 " uid=%u launch_hooks=%u devices=%u\n", region.job().job_id, region.job().uid,
              region.job().launch_hooks, region.ndev());
  for (unsigned dev = 0; dev < region.ndev(); ++dev) {
    const DeviceSnapshot &device = region.device(dev);
    std::printf("device=%u uuid=%s pci=%s limit=%" PRIu64 " sm=%u used=%" PRIu64 " peak=%" PRIu64 " refused=%" PRIu64
                " numa=%d cpus=%s context=%" PRIu64 ":%u usable=%" PRIu64 "\n",
                dev, device.identity.uuid, device.identity.pci_bus_id, device.memory_limit, device.sm_percent,
                device.memory_used, device.memory_peak, device.refused, device.identity.numa_node,
                device.identity.cpuset, device.context.bytes, static_cast<unsigned>(device.context.source),
                device.usable_bytes);
  }
  for (unsigned i = 0; i < region.ranks(); ++i) {
    std::printf("rank=%u %s\n", region.rank(i).slot, region.rank(i).verdict == Verdict::alive ? "alive" : "gone");
  }
  return 0;
}

Error wait_for_others(const char *file, long ranks) {
  const int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0 || write(fd, ".", 1) != 1) return system_error("%s", file);
  struct stat now = {};
  while (fstat(fd, &now) == 0 && now.st_size < ranks) usleep(20'000);
  close(fd);
  return {};
}

int hold(const char *directory, std::uint64_t bytes, unsigned seconds, const char *file, long ranks) {
  Region region;
  Rank rank;
  if (Error error = Region::attach(directory, Trust::root, &region)) return complain(error);
  if (Error error = Rank::attach(region, &rank)) return complain(error);
  const Grant grant = rank.try_to_reserve(0, Kind::data, bytes);
  if (grant == Grant::refused) rank.note_refusal(0);
  std::puts(grant == Grant::granted ? "granted" : "refused");
  std::fflush(stdout);
  if (file != nullptr) {
    if (Error error = wait_for_others(file, ranks)) return complain(error);
  }
  sleep(seconds);
  return grant == Grant::granted ? 0 : 3;
}

}  // namespace

int main(int argc, char **argv) {
  const char *region = std::getenv("VGPU_REGION");
  if (argc == 3 && std::strcmp(argv[1], "--show") == 0) return show(argv[2]);
  if (region == nullptr) {
    std::puts("no region");
    return 1;
  }
  if (argc == 2 && std::strcmp(argv[1], "--show") == 0) return show(region);
  if (argc < 2) return 2;
  const std::uint64_t bytes = std::strtoull(argv[1], nullptr, 10);
  if (argc == 5 && std::strcmp(argv[2], "with") == 0) {
    return hold(region, bytes, 0, argv[4], std::strtol(argv[3], nullptr, 10));
  }
  return hold(region, bytes, argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0, nullptr, 0);
}
