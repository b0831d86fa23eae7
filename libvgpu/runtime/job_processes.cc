#include "job_processes.h"

#include <signal.h>

#include <cerrno>

#include "host_pid.h"
#include "region/correct.h"
#include "runtime.h"

namespace vgpu::runtime {

namespace {

// Of the two namespaces in the word the PID namespace is the lower half; see SelfIdentity.
bool is_initial(std::uint64_t namespaces) { return static_cast<std::uint32_t>(namespaces) == kInitialPidNamespace; }

// What the rank in a slot found out about itself; 0: nothing.
unsigned noted_host_pid(const region::Usage &usage, unsigned slot, const region::OwnerWord &owner) {
  region::InfoValues info;
  const region::SlotInfo &block = usage.info(slot);
  if (!try_read_info([&](region::InfoCopy *copy) { return copy_info(block, copy); }, &info)) return 0;
  // Of this rank, not of one that had the slot before.
  return (info.start_time & region::OwnerWord::Start::kMask) == owner.start ? static_cast<unsigned>(info.host_pid) : 0;
}

}  // namespace

JobProcesses::JobProcesses(const region::SelfIdentity &self)
    : liveness_(job_region().usage_path(), job_region().usage(), region::Effort::quick, self),
      self_(nvml_pid()),
      in_namespace_(!is_initial(self.namespaces)),
      numbers_are_ours_(in_namespace_) {
  const region::Usage &usage = job_region().usage();
  const unsigned here = find_namespace(usage, self.namespaces);
  for (unsigned slot = region::kRootSlot + 1; slot < region::kSlots; ++slot) {
    const std::uint64_t word = usage.owner(slot).load(std::memory_order_acquire);
    const region::OwnerWord owner = region::OwnerWord::unpack(word);
    if (owner.state == region::OwnerWord::kFree) continue;
    const auto pid = static_cast<unsigned>(owner.pid);
    const bool is_here = owner.ns != region::kUnknownNamespace && owner.ns == here;
    const region::Word &namespaces = usage.pid_namespace(static_cast<unsigned>(owner.ns));
    const bool is_on_host = is_initial(namespaces.load(std::memory_order_relaxed));
    members_[count_++] = {word, slot, is_on_host ? pid : noted_host_pid(usage, slot, owner), is_here ? pid : 0};
  }
}

void JobProcesses::see(unsigned pid) {
  if (numbers_are_ours_) numbers_are_ours_ = kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

unsigned JobProcesses::unnamed_on(unsigned dev) {
  unsigned unnamed = 0;
  for (unsigned i = 0; i < count_; ++i) {
    const Member &member = members_[i];
    if (pid(i) != 0) continue;
    if (mark_rest(job_region().usage(), dev, member.slot).context_bytes() == 0) continue;
    unnamed += liveness_.examine(member.slot, member.owner) == region::Verdict::alive;
  }
  return unnamed;
}

bool JobProcesses::has(unsigned pid) {
  if (pid == 0) return false;
  if (pid == self_) return true;
  for (unsigned i = 0; i < count_; ++i) {
    const Member &member = members_[i];
    if (pid != member.host_pid && !(numbers_are_ours_ && pid == member.pid_here)) continue;
    // The number of a rank that is gone may be anybody's.
    if (liveness_.examine(member.slot, member.owner) == region::Verdict::alive) return true;
  }
  return false;
}

}  // namespace vgpu::runtime
