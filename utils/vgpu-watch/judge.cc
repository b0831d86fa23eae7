#include "judge.h"

#include <algorithm>
#include <numeric>

#include "node/values.h"

namespace vgpu::watch {

namespace {

std::uint64_t sum_of(const std::vector<Holder> &holders) {
  return std::accumulate(holders.begin(), holders.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Holder &holder) { return sum + holder.bytes; });
}

// What may be counted more than once among the processes of that user, at most. Where NVML does not say what the whole GPU
// holds, that is all but one process's.
std::uint64_t shared_at_most(const Sample &sample, std::uint64_t between_them, const std::string &uuid) {
  const auto memory = sample.memory.find(uuid);
  if (memory == sample.memory.end()) return between_them;
  const std::uint64_t listed = memory->second.listed;
  return std::min(between_them, listed - std::min(listed, memory->second.in_use));
}

// Whoever holds what the books do not explain; if they explain everything, all that hold any.
std::vector<Holder> guilty_of(const std::vector<Holder> &holders) {
  std::vector<Holder> guilty;
  std::copy_if(holders.begin(), holders.end(), std::back_inserter(guilty),
               [](const Holder &holder) { return holder.counted == Counted::no && holder.bytes > 0; });
  return guilty.empty() ? holders : guilty;
}

unsigned one_more_if(bool wrong, unsigned before) { return wrong ? before + 1 : 0; }

}  // namespace

// Who is there now, and what each may hold: a limit that was lowered is kept by taking no more.
void Judge::remember(const Sample &sample) {
  std::map<std::uint32_t, Job> jobs;
  for (const JobSeen &seen : sample.jobs) {
    Job job = std::move(jobs_[seen.id]);
    if (job.created != seen.created) job = Job{seen.created, 0, {}, {}};
    for (const DeviceSeen &now : seen.devices) {
      Device &device = job.devices[now.uuid];
      const std::uint64_t before = std::max({device.allowance, device.last_limit, now.former_limit});
      if (sample.nvml) device.sums[device.known_sums++ % kSlowSamples] = sum_of(now.holders);
      const bool is_known = device.known_sums >= kSlowSamples;
      const std::uint64_t most = is_known ? *std::max_element(device.sums.begin(), device.sums.end()) : before;
      device.allowance = std::max(now.limit, std::min(before, most));
      device.last_limit = now.limit;
    }
    jobs[seen.id] = std::move(job);
  }
  jobs_ = std::move(jobs);
}

Judge::UserOnDevice Judge::user_on(const Sample &sample, uid_t uid, const std::string &uuid) const {
  UserOnDevice user;
  for (const JobSeen &job : sample.jobs) {
    for (const DeviceSeen &device : job.devices) {
      if (job.uid != uid || device.uuid != uuid) continue;
      user.held += sum_of(device.holders);
      user.allowed += jobs_.at(job.id).devices.at(uuid).allowance + tolerance_of(device.limit);
      for (const Holder &holder : device.holders) user.largest = std::max(user.largest, holder.bytes);
    }
  }
  return user;
}

void Judge::judge_books(const JobSeen &seen, Job *job, std::vector<Finding> *findings) {
  job->unreadable = one_more_if(!seen.books_trouble.empty(), job->unreadable);
  if (job->unreadable == kSamples) {
    findings->push_back({seen.id, Wrong::books, "", "has books that cannot be read: " + seen.books_trouble, {}});
  }
  if (!seen.books_trouble.empty()) return;
  for (const DeviceSeen &now : seen.devices) {
    Device &before = job->devices[now.uuid];
    // A busy job may change its words faster than they can be read; one that stands still adds up.
    const bool stands_still = now.picture == before.last_picture;
    before.does_not_add_up = one_more_if(!now.adds_up && stands_still, before.does_not_add_up);
    if (before.does_not_add_up == kSamples) {
      findings->push_back({seen.id, Wrong::books, now.uuid, "has books that do not add up for GPU " + now.uuid, {}});
    }
    if (now.counters.went_back_since(before.last_counters)) {
      findings->push_back({seen.id, Wrong::books, now.uuid, "has books that went backwards for GPU " + now.uuid, {}});
    }
    before.last_picture = now.picture;
    before.last_counters = now.counters;
  }
}

void Judge::judge_device(const Sample &sample, const JobSeen &seen, const DeviceSeen &now, Job *job,
                         std::vector<Finding> *findings) {
  Device &before = job->devices[now.uuid];
  const std::uint64_t listed = sum_of(now.holders);
  const UserOnDevice user = user_on(sample, seen.uid, now.uuid);
  const std::uint64_t shared = shared_at_most(sample, user.held - user.largest, now.uuid);
  const std::uint64_t held = listed - std::min(listed, shared);
  const std::uint64_t allowed = before.allowance + tolerance_of(now.limit);
  // Of two jobs one may share its memory so often that the other one's seems to be shared. Together they hold what they hold.
  const bool together = user.held - shared > user.allowed && listed > allowed;
  before.over = one_more_if(held > allowed || together, before.over);
  if (before.over == kSamples) {
    findings->push_back({seen.id, Wrong::memory, now.uuid,
                         "holds " + node::format_bytes((together ? listed : held) >> 20 << 20) + " of GPU " + now.uuid +
                             ", but its limit is " + node::format_bytes(now.limit),
                         guilty_of(now.holders)});
    before.over = 0;
  }

  unsigned share = 0;
  bool is_known = now.sm_percent < 100;
  for (const Holder &holder : now.holders) {
    is_known = is_known && holder.sm_percent >= 0;
    share += static_cast<unsigned>(std::max(holder.sm_percent, 0));
  }
  if (is_known) {
    before.shares[before.known_shares++ % kTimeSamples] = share;
    const unsigned mean = std::accumulate(before.shares.begin(), before.shares.end(), 0u) / kTimeSamples;
    if (before.known_shares >= kTimeSamples && mean > now.sm_percent + kTimeTolerance) {
      findings->push_back({seen.id,
                           Wrong::time,
                           now.uuid,
                           "used " + std::to_string(std::min(mean, 100u)) + " % of the time of GPU " + now.uuid +
                               ", but its share is " + std::to_string(now.sm_percent) + " %",
                           {}});
      before.known_shares = 0;
    }
  }

  if (!seen.books_trouble.empty()) return;
  std::map<int, unsigned> uncounted;
  bool all_are_counted = true;
  for (const Holder &holder : now.holders) {
    all_are_counted = all_are_counted && holder.counted == Counted::yes;
    if (holder.counted != Counted::no || holder.bytes == 0) continue;
    const unsigned times = uncounted[holder.pid] = before.uncounted[holder.pid] + 1;
    if (times == kSamples) {
      findings->push_back({seen.id,
                           Wrong::uncounted,
                           now.uuid,
                           "has a process that holds " + node::format_bytes(holder.bytes) + " of GPU " + now.uuid +
                               " and runs without libvgpu",
                           {holder}});
    }
  }
  before.uncounted = std::move(uncounted);
  before.too_little = one_more_if(all_are_counted && held > now.counted + tolerance_of(now.limit), before.too_little);
  if (before.too_little == kSlowSamples) {
    findings->push_back({seen.id,
                         Wrong::books,
                         now.uuid,
                         "holds " + node::format_bytes(held >> 20 << 20) + " of GPU " + now.uuid +
                             ", but its books have only " + node::format_bytes(now.counted),
                         {}});
  }
}

std::vector<Finding> Judge::judge(const Sample &sample) {
  remember(sample);
  std::vector<Finding> findings;
  for (const JobSeen &seen : sample.jobs) {
    Job &job = jobs_[seen.id];
    const std::size_t first = findings.size();
    judge_books(seen, &job, &findings);
    for (const DeviceSeen &device : seen.devices) {
      if (sample.nvml) judge_device(sample, seen, device, &job, &findings);
    }
    for (std::size_t i = first; i < findings.size(); ++i) {
      Finding &finding = findings[i];
      const std::string who = finding.wrong == Wrong::uncounted ? std::to_string(finding.guilty[0].pid) : "";
      finding.is_new = job.found.insert(std::to_string(static_cast<int>(finding.wrong)) + finding.uuid + who).second;
    }
  }
  return findings;
}

}  // namespace vgpu::watch
