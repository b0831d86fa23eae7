#include "utilisation_check.h"

#include <time.h>

#include <algorithm>

#include "base/clock.h"
#include "runtime/job_processes.h"
#include "runtime/log.h"
#include "runtime/nvml_client.h"
#include "runtime/runtime.h"
#include "wait.h"

namespace vgpu::sm {

namespace {

// An answer of NVML that takes longer is slow, and the next question waits for this many times as long: NVML gets at
// most a fiftieth of a thread's time. Absent, an NVML that takes 100 ms would have the elected rank in it for most of
// every tick, and that rank's launches would come late. With a lower bound on what is slow, or a larger factor, usual
// answers would make the comparison miss many of NVML's windows.
constexpr std::uint64_t kSlowNs = 10'000'000;
constexpr std::uint64_t kRestFactor = 50;
// A rank looks at the lease at most so often per tick. Absent, all waiting threads would read its shared line each time
// they wait; only once per tick, a leader that comes a little early would skip a tick, and with it one of NVML's
// windows.
constexpr std::uint64_t kLooksPerTick = 4;
// How far back the first question goes, so that it can have an answer at once although NVML is late. Less: the first
// answer comes a tick or more later. More: it is of a time before the job's launches.
constexpr std::uint64_t kFirstQuestionUs = 1'000'000;

// Two readings of the same instant are at most so far apart. Absent, a thread that is interrupted between them, as it often
// is on a busy machine, would take NVML's windows for earlier or later than they were, and for shorter or longer.
constexpr std::uint64_t kSameInstantNs = 20'000;
constexpr unsigned kTries = 10;

// For how long a job computes without a word of NVML on it until that is told. Shorter than NVML's lag and windows, a
// second or two: every job would be told so at its start.
constexpr std::uint64_t kSilenceNs = 3'000'000'000;

std::uint64_t nvml_clock_us() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

// The same instant on both clocks.
struct Instant {
  std::uint64_t nvml_us = 0;
  std::uint64_t monotonic_ns = 0;
};

Instant read_clocks() {
  Instant now;
  std::uint64_t closest = ~std::uint64_t{0};
  for (unsigned tries = 0; tries < kTries && closest > kSameInstantNs; ++tries) {
    const std::uint64_t before = monotonic_ns();
    const std::uint64_t us = nvml_clock_us();
    const std::uint64_t apart = monotonic_ns() - before;
    if (apart >= closest) continue;
    closest = apart;
    now = {us, before + apart / 2};
  }
  return now;
}

// Whether processes that are not the job's compute on the device, too: more of them than there are ranks whose numbers
// nobody knows.
bool is_shared(unsigned dev, runtime::JobProcesses &job) {
  runtime::NvmlProcesses processes;
  if (!list_processes(dev, &processes)) return false;
  job.begin_list();
  for (unsigned i = 0; i < processes.count(); ++i) job.see(processes.pid(i));
  unsigned strangers = 0;
  for (unsigned i = 0; i < processes.count(); ++i) strangers += !job.has(processes.pid(i));
  return strangers != 0 && strangers > job.unnamed_on(dev);
}

// The job's part of what NVML has sampled since the last check, if it is FeedbackState::nvml. The job's processes may be
// busy under numbers that we do not know, so that nothing of them is not 0 %; nor is what NVML says of some of them all,
// while others go by unknown numbers. FeedbackState::not_asked: it knows of nothing new.
region::FeedbackState read_utilisation(UtilisationCheck &state, unsigned dev, runtime::JobProcesses &job,
                                       Observation *seen) {
  runtime::NvmlSamples samples;
  if (state.seen_us == 0) state.seen_us = nvml_clock_us() - kFirstQuestionUs;
  switch (list_utilisation(dev, state.seen_us, &samples)) {
    case runtime::UtilisationAnswer::samples:
      break;
    case runtime::UtilisationAnswer::nothing_new:
      return region::FeedbackState::not_asked;
    case runtime::UtilisationAnswer::unsupported:
      return region::FeedbackState::unsupported;
    case runtime::UtilisationAnswer::no_nvml:
      return region::FeedbackState::no_nvml;
  }
  const Instant now = read_clocks();
  job.begin_list();
  for (unsigned i = 0; i < samples.count; ++i) job.see(samples.entries[i].pid);
  unsigned long long newest_us = 0;
  for (unsigned i = 0; i < samples.count; ++i) {
    const runtime::NvmlSample &sample = samples.entries[i];
    if (sample.ended_us > now.nvml_us || !job.has(sample.pid)) continue;
    newest_us = std::max(newest_us, sample.ended_us);
    seen->percent += sample.sm_percent;
    ++seen->processes;
  }
  if (seen->processes == 0 || job.unnamed_on(dev) != 0) return region::FeedbackState::unnamed;
  state.seen_us = newest_us;
  seen->to_ns = now.monotonic_ns - (now.nvml_us - newest_us) * 1000;
  return region::FeedbackState::nvml;
}

// Why there is no feedback, and what can be done about it.
const char *explanation(region::FeedbackState state) {
  switch (state) {
    case region::FeedbackState::no_nvml:
      return "libnvidia-ml.so.1 is not there or does not know the GPU; in a container, ask for the driver's utility "
             "libraries (NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
    case region::FeedbackState::unsupported:
      return "NVML does not tell how busy processes keep this GPU; a newer driver may, parts of a GPU (MIG) never do";
    case region::FeedbackState::unnamed:
      return "NVML does not name the job's processes; in a container, use the host's process numbers (--pid=host)";
    default:
      return nullptr;
  }
}

// For display, and once for the log.
void tell(unsigned dev, region::FeedbackState state) {
  const region::Usage &usage = runtime::job_region().usage();
  const auto word = static_cast<std::uint64_t>(state);
  if (usage.has_appendix() && usage.device_more(dev).feedback.load(std::memory_order_relaxed) != word) {
    usage.device_more(dev).feedback.store(word, std::memory_order_relaxed);
  }
  static constinit std::atomic<bool> is_told{false};
  const char *why = explanation(state);
  if (why == nullptr || is_told.exchange(true, std::memory_order_relaxed)) return;
  runtime::log_format(runtime::LogLevel::info, "the SM share of GPU %u rests on measured launches alone: %s", dev, why);
}

// What is so after a check. That NVML has nothing new, or speaks of others, says something only when it goes on.
region::FeedbackState lasting(region::FeedbackState answer, region::FeedbackState before, const Feedback &feedback) {
  const bool is_silent = answer == region::FeedbackState::not_asked || answer == region::FeedbackState::unnamed;
  if (!is_silent) return answer;
  return feedback.unheard_ns() >= kSilenceNs ? region::FeedbackState::unnamed : before;
}

void note(UtilisationCheck &state, const region::DeviceUsage &device, std::uint64_t now_ns) {
  state.feedback.note_charged(now_ns, device.charged_ns.load(std::memory_order_relaxed));
}

void compare_with_nvml(UtilisationCheck &state, unsigned dev, region::DeviceUsage &device, const Costs &costs,
                       std::uint64_t now_ns) {
  region::TrimWord trim = region::TrimWord::unpack(device.trim.load(std::memory_order_relaxed));
  runtime::JobProcesses job;
  Observation seen;
  seen.shared = is_shared(dev, job);
  seen.launch_ns = costs.typical_ns();
  const region::FeedbackState answer = read_utilisation(state, dev, job, &seen);
  trim.ratio = answer == region::FeedbackState::nvml ? state.feedback.observe(seen, now_ns, trim.ratio)
                                                     : state.feedback.without_answer(trim.ratio);
  state.told = lasting(answer, state.told, state.feedback);
  tell(dev, state.told);
  publish(device, state.candidate, trim.ratio, seen.shared);
}

}  // namespace

void check_utilisation(UtilisationCheck &state, unsigned dev, region::DeviceUsage &device, const Costs &costs,
                       std::uint64_t now_ns) {
  if (state.busy.exchange(true, std::memory_order_acquire)) return;
  note(state, device, now_ns);
  if (now_ns >= state.not_before_ns) {
    state.not_before_ns = now_ns + kTickMs * 1'000'000 / kLooksPerTick;
    const LeaseClaim claim = claim_lease(device, state.candidate, runtime::rank().slot(), now_ns / 1'000'000);
    if (claim == LeaseClaim::acquired) state.feedback.reset();
    if (claim != LeaseClaim::refused) {
      compare_with_nvml(state, dev, device, costs, now_ns);
      const std::uint64_t took_ns = monotonic_ns() - now_ns;
      if (took_ns > kSlowNs) state.not_before_ns = now_ns + took_ns * kRestFactor;
    }
  }
  state.busy.store(false, std::memory_order_release);
}

void note_charged(UtilisationCheck &state, const region::DeviceUsage &device, std::uint64_t now_ns) {
  if (state.busy.exchange(true, std::memory_order_acquire)) return;
  note(state, device, now_ns);
  state.busy.store(false, std::memory_order_release);
}

}  // namespace vgpu::sm
