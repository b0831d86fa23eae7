// rank MIB: takes a slot in the region it was given, reserves memory on its first device, says how that went, and stays
// until it is told to end.
// rank interrupts: says when it is interrupted, every time. (A shell's trap runs once for several signals.)
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "region/region.h"

namespace {

void say(const char *line) {
  if (write(STDOUT_FILENO, line, std::strlen(line)) < 0) _exit(1);
}

[[noreturn]] void count_interrupts() {
  signal(SIGINT, [](int) { say("caught INT\n"); });
  signal(SIGUSR1, [](int) { _exit(7); });
  say("ready\n");
  for (;;) pause();
}

}  // namespace

int main(int, char **argv) {
  if (std::strcmp(argv[1], "interrupts") == 0) count_interrupts();
  static vgpu::region::Region region;
  static vgpu::region::Rank rank;
  const char *directory = std::getenv("VGPU_REGION");
  if (directory == nullptr) return 1;
  vgpu::Error error = vgpu::region::Region::attach(directory, vgpu::region::Trust::root_or_self, &region);
  if (!error) error = vgpu::region::Rank::attach(region, &rank);
  if (error) {
    std::fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  const vgpu::region::Grant grant =
      rank.try_to_reserve(0, vgpu::region::Kind::data, std::strtoull(argv[1], nullptr, 10) << 20);
  if (grant == vgpu::region::Grant::refused) rank.note_refusal(0);
  say(grant == vgpu::region::Grant::granted ? "granted\n" : "refused\n");
  for (;;) pause();
}
