#include "refusal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/wiped.h"
#include "log.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

constexpr unsigned kHoldersNamed = 3;

struct Logged {
  std::atomic<bool> refusal;
  std::atomic<bool> not_in_job;
};
constinit WipedOnFork<Logged> logged;

bool first_time(std::atomic<bool> Logged::*what) {
  Logged *state = logged.get();
  return state != nullptr && !(state->*what).exchange(true, std::memory_order_relaxed);
}

// A line that is put together piece by piece; cut, never overrun.
class Line {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text_ + used_, sizeof text_ - used_, format, arguments);
    va_end(arguments);
    if (length > 0) used_ = std::min(used_ + static_cast<std::size_t>(length), sizeof text_ - 1);
  }
  // Rounded up, except the limit, which is rounded down: the sum in the line is then seen to be too much.
  void add_bytes(std::uint64_t bytes, bool round_up = true) {
    const unsigned shift = bytes < (1 << 20) ? 10 : 20;
    const std::uint64_t unit = std::uint64_t{1} << shift;
    const std::uint64_t whole = bytes >> shift;
    const std::uint64_t tenths = ((bytes & (unit - 1)) * 10 + (round_up ? unit - 1 : 0)) >> shift;
    add("%llu", static_cast<unsigned long long>(whole + tenths / 10));
    if (tenths % 10 != 0) add(".%llu", static_cast<unsigned long long>(tenths % 10));
    add(shift == 10 ? "KiB" : "MiB");
  }
  const char *text() const { return text_; }

 private:
  char text_[768] = "";
  std::size_t used_ = 0;
};

struct Holder {
  std::uint64_t pid = 0;
  std::uint64_t bytes = 0;
};

struct Holders {
  Holder largest[kHoldersNamed];
  unsigned others = 0;
  std::uint64_t others_bytes = 0;
};

Holders find_holders(unsigned dev) {
  Holders holders;
  const region::Usage &usage = job_region().usage();
  for (unsigned slot = region::kRootSlot + 1; slot < region::kSlots; ++slot) {
    const region::OwnerWord owner = region::OwnerWord::unpack(usage.owner(slot).load(std::memory_order_relaxed));
    if (owner.state == region::OwnerWord::kFree) continue;
    Holder holder = {owner.pid, 0};
    for (const region::Lane &lane : usage.lanes(slot, dev).kinds) {
      holder.bytes += region::bytes_of(region::LaneWord::unpack(lane.current.load(std::memory_order_relaxed)).units);
    }
    for (Holder &place : holders.largest) {
      if (holder.bytes > place.bytes) std::swap(holder, place);
    }
    if (holder.bytes != 0) {
      ++holders.others;
      holders.others_bytes += holder.bytes;
    }
  }
  return holders;
}

void add_holders(unsigned dev, Line *line) {
  const Holders holders = find_holders(dev);
  const char *separator = "; held by ";
  for (const Holder &holder : holders.largest) {
    if (holder.bytes == 0) continue;
    const bool self = holder.pid == static_cast<std::uint64_t>(getpid());
    line->add(self ? "%sthis process (pid %llu) " : "%spid %llu ", separator,
              static_cast<unsigned long long>(holder.pid));
    line->add_bytes(holder.bytes);
    separator = ", ";
  }
  if (holders.others != 0) {
    line->add(holders.others == 1 ? ", %u other " : ", %u others ", holders.others);
    line->add_bytes(holders.others_bytes);
  }
}

void add_job(unsigned dev, Line *line) {
  if (job_region().job().job_id != 0) {
    line->add("job %llu, ", static_cast<unsigned long long>(job_region().job().job_id));
  }
  // By UUID, or else by its place: the region, CUDA and Slurm each count the GPUs in their own way.
  const region::DeviceIdentity &identity = job_region().device(dev).identity;
  line->add("GPU %s", identity.uuid[0] != '\0' ? identity.uuid : identity.pci_bus_id);
}

}  // namespace

void refuse(unsigned dev, std::uint64_t asked, region::Grant grant) {
  if (grant == region::Grant::refused) rank().note_refusal(dev);
  // Without a limit the GPU itself has no more. The driver would refuse it too, without a word, and no option helps.
  if (grant == region::Grant::refused && !is_limited(dev)) return;
  if (!first_time(&Logged::refusal)) return;
  if (grant == region::Grant::detached) {
    log_text(LogLevel::error, rank().trouble().text);
    return;
  }
  Line line;
  add_job(dev, &line);
  line.add(": out of memory: ");
  line.add_bytes(job_region().memory_used(dev));
  line.add(" used + ");
  line.add_bytes(region::bytes_of(region::units_for(asked)));
  line.add(" asked > ");
  line.add_bytes(job_region().memory_limit(dev), false);
  line.add(" limit");
  add_holders(dev, &line);
  line.add("; ask for more with --gpu-mem");
  log_text(LogLevel::error, line.text());
}

void log_not_in_job() {
  if (!first_time(&Logged::not_in_job)) return;
  log_text(LogLevel::error,
           "this GPU is not one of the job's, and nothing can be allocated on it; ask for more GPUs with --gres or set "
           "CUDA_VISIBLE_DEVICES to the job's");
}

}  // namespace vgpu::runtime
