// truth_oracle REGION NAME [FILE]: stands beside a job on a simulated node and compares, a thousand times a second, what the
// devices hold with the job's limits and books, until it gets SIGTERM. Everybody on the node is taken for the job's.
//
// From outside nobody sees whether a call of the driver is in one of libvgpu's hooks. So the device is judged when no process
// has called the driver or NVML, or returned, for 25 ms: a hook that waits asks NVML more often than that. The node must
// count calls (count_calls=yes). Waste is judged when the device has held the same for two seconds.
//
// Prints what it found. A line is added to FILE, or to what VGPU_TRUTH_FILE names, for truth_bench: the name, bytes over the
// limit, the same by launches, the most that one launch brought, for how many seconds the books did not have that, waste.
// Exit status: 1 if the device was over the limit by what calls announced, or nothing was ever seen there.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/truth/device_books.h"
#include "bench/truth/judge.h"
#include "region/region.h"
#include "simgpu/node/config.h"
#include "simgpu/node/link.h"

namespace {

using namespace vgpu;
using namespace vgpu::region;
using truth::Judge;
using truth::Reading;

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kQuietNs = 25 * kMillisecond;
constexpr std::uint64_t kSteadyNs = 2000 * kMillisecond;

struct Watched {
  unsigned dev;  // of the region
  simgpu::DeviceState *state;
  Judge judge;
  std::uint64_t held = 0, held_since_ns = 0;
  std::uint64_t most_held = 0;

  unsigned holders() const {
    unsigned count = 0;
    for (const simgpu::DeviceSlot &slot : state->slots) count += slot.held_blocks.load() != 0;
    return count;
  }
};

class Oracle {
 public:
  bool start(const char *directory) {
    std::string why;
    if (link_.connect(false, &why) != 0) return complain(why.c_str());
    if (link_.node()->count_calls == 0) return complain("the node does not count calls; say count_calls=yes");
    if (const Error error = Region::attach(directory, Trust::root_or_self, &region_)) return complain(error.text);
    for (unsigned dev = 0; dev < region_.ndev(); ++dev) {
      for (simgpu::LinkedDevice &device : link_.devices()) {
        if (simgpu::format_uuid(device.state->facts.uuid) == region_.device(dev).identity.uuid)
          watched_.push_back({dev, device.state, {}});
      }
    }
    return watched_.size() == region_.ndev() || complain("a device of the region is not on the node");
  }

  void sample() {
    const std::uint64_t now = monotonic_ns();
    const std::uint64_t calls = count_calls();
    if (calls != calls_) calls_since_ns_ = now;
    calls_ = calls;
    for (Watched &device : watched_) {
      const Reading reading = read(device);
      // A call that came while the blocks were counted is seen by the next sample.
      const bool quiet = now - calls_since_ns_ >= kQuietNs && count_calls() == calls;
      if (quiet) device.judge.look(reading, now);
      if (!quiet) device.judge.look_during_call(reading);
      judge_waste(device, reading, now);
    }
  }

  int report(const char *name, const char *file) const {
    Judge worst;
    std::uint64_t most_held = 0;
    for (const Watched &device : watched_) {
      worst.add(device.judge);
      most_held = std::max(most_held, device.most_held);
    }
    std::printf(
        "the device held up to %.0f MiB; over the limit: %llu bytes, %llu while a call may have been in progress\n",
        in_mib(most_held), number(worst.over_bytes()), number(worst.over_in_call_bytes()));
    std::printf("launches brought %.0f MiB beyond the limit, not in the books for %.2f s; waste %.1f of 3\n",
                in_mib(worst.launch_over_bytes()), worst.launch_over_seconds(), worst.waste_percent());
    if (file != nullptr) {
      if (FILE *figures = std::fopen(file, "ae")) {
        std::fprintf(figures, "%s %llu %llu %llu %.2f %.2f\n", name, number(worst.over_bytes()),
                     number(worst.launch_over_bytes()), number(worst.growth_bytes()), worst.launch_over_seconds(),
                     worst.waste_percent());
        std::fclose(figures);
      }
    }
    if (most_held == 0) std::printf("nobody held anything: there was nothing to judge\n");
    return worst.over_bytes() != 0 || most_held == 0 ? 1 : 0;
  }

 private:
  static bool complain(const char *why) {
    std::fprintf(stderr, "truth_oracle: %s\n", why);
    return false;
  }
  static double in_mib(std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(Judge::kMiB); }
  static unsigned long long number(std::uint64_t value) { return value; }

  std::uint64_t count_calls() const {
    std::uint64_t sum = 0;
    const unsigned slots = link_.node()->slot_high_water.load();
    for (unsigned i = 0; i < slots; ++i) {
      const simgpu::ProcessSlot &slot = link_.node()->slots[i];
      sum += slot.calls.load() + slot.returned.load() + slot.generation.load();
    }
    return sum;
  }

  Reading read(const Watched &device) const {
    Reading reading;
    truth::read_device(
        *link_.node(), *device.state, [](pid_t) { return true; }, &reading);
    reading.limit = region_.memory_limit(device.dev);
    reading.books = region_.memory_used(device.dev);
    return reading;
  }

  static void judge_waste(Watched &device, const Reading &reading, std::uint64_t now) {
    device.most_held = std::max(device.most_held, reading.held);
    if (reading.held != device.held) device.held_since_ns = now;
    device.held = reading.held;
    if (now - device.held_since_ns >= kSteadyNs) device.judge.rest(reading, device.holders());
  }

  mutable simgpu::NodeLink link_;
  Region region_;
  std::vector<Watched> watched_;
  std::uint64_t calls_ = 0, calls_since_ns_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: truth_oracle REGION NAME [FILE]\n");
    return 2;
  }
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  sigprocmask(SIG_BLOCK, &end, nullptr);
  Oracle oracle;
  if (!oracle.start(argv[1])) return 2;
  std::printf("watching\n");
  std::fflush(stdout);
  const timespec pause = {0, kMillisecond};
  while (sigtimedwait(&end, nullptr, &pause) != SIGTERM) oracle.sample();
  return oracle.report(argv[2], argc == 4 ? argv[3] : std::getenv("VGPU_TRUTH_FILE"));
}
