#include "collect.h"

#include <time.h>

#include <algorithm>
#include <optional>

#include "node/counted_processes.h"
#include "node/history.h"
#include "node/settle.h"

namespace vgpu::watch {

namespace {

constexpr unsigned kNvmlDeadline_ms = 5'000;
constexpr unsigned kLongestPause = 20;      // samples
constexpr unsigned kSamplesPerHistory = 6;  // what reports average needs no more

JobSeen seen_of(const node::RegionLimits &limits) {
  JobSeen job;
  job.id = static_cast<std::uint32_t>(limits.job.job_id);
  job.uid = limits.job.uid;
  job.created = limits.created;
  for (const region::DeviceSpec &spec : limits.devices) {
    DeviceSeen device;
    device.uuid = spec.identity.uuid;
    device.limit = spec.memory_limit;
    device.sm_percent = spec.sm_percent;
    job.devices.push_back(std::move(device));
  }
  return job;
}

// FNV-1a over whole words: not for enemies, who can only make their own books look as if they stood still.
class Picture {
 public:
  void add(std::uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3; }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::uint64_t picture_of(const region::Snapshot &books, unsigned dev) {
  Picture picture;
  picture.add(books.device(dev).memory_used);
  for (unsigned i = 0; i < books.ranks(); ++i) {
    const region::RestMark &mark = books.mark(i, dev);
    picture.add(mark.owner);
    for (const std::uint64_t lane : mark.lanes) picture.add(lane);
  }
  return picture.value();
}

// The processes in the books of one job.
class Ranks {
 public:
  explicit Ranks(const region::Snapshot *books) : is_known_(books != nullptr), count_(is_known_ ? books->ranks() : 0) {
    if (is_known_) counted_.emplace(*books);
  }
  Counted contains(int pid) const {
    if (!is_known_) return Counted::unknown;
    if (counted_->contains(pid)) return Counted::yes;
    // A rank in a PID namespace does not always find out its number on the node, and may take another one for its own.
    return count_ > 0 && node::is_in_another_pid_namespace(pid) ? Counted::unknown : Counted::no;
  }

 private:
  bool is_known_;
  unsigned count_;
  std::optional<node::CountedProcesses> counted_;
};

double now_s() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

Collector::Collector(const node::SiteConfig &config)
    : config_(config),
      directory_(config.directory()),
      probe_({config.probe, config.nvml, config.hwloc_xml, kNvmlDeadline_ms}) {}

// Fails at once while it is given time to recover.
Error Collector::ask_nvml() {
  if (pause_ > 0) {
    --pause_;
    return make_error(Fault::timeout, "NVML did not answer before");
  }
  std::string text;
  Error error = probe_.ask(&text);
  if (!error) error = parse_processes("the probe", text, &processes_, &in_use_);
  failures_ = error ? failures_ + 1 : 0;
  if (error) pause_ = std::min(1u << std::min(failures_, 8u), kLongestPause);
  return error;
}

void Collector::add_books(JobSeen *seen, Looks *looks) {
  looks->earlier = std::move(looks->now);
  auto books = std::make_unique<region::Snapshot>();
  const std::string path = directory_.job(seen->id).path();
  if (Error error = region::Snapshot::read(path.c_str(), region::Trust::root, region::Detail::tokens, books.get())) {
    seen->books_trouble = error.text;
    return;
  }
  for (unsigned dev = 0; dev < std::min<std::size_t>(books->ndev(), seen->devices.size()); ++dev) {
    DeviceSeen &device = seen->devices[dev];
    const region::DeviceSnapshot &words = books->device(dev);
    device.counted = words.memory_living;
    device.adds_up = words.ranks_add_up;
    device.picture = picture_of(*books, dev);
    device.counters = {words.refused, words.exits, words.launches, words.throttled_ns};
    device.former_limit = looks->former_limits[device.uuid];
  }
  looks->now = std::move(books);
}

void Collector::add_holders(Sample *sample) {
  // NVML may have a process twice on one device.
  std::map<std::pair<std::string, int>, node::GpuProcess> once;
  for (const node::GpuProcess &process : processes_) {
    node::GpuProcess &known = once.emplace(std::pair(process.uuid, process.pid), process).first->second;
    known.bytes = std::max(known.bytes, process.bytes);
  }
  std::map<std::pair<std::uint32_t, std::string>, std::map<int, node::GpuProcess>> holders;
  for (const auto &[uuid, bytes] : in_use_) sample->memory[uuid].in_use = bytes;
  for (const auto &[key, process] : once) {
    if (const auto memory = sample->memory.find(process.uuid); memory != sample->memory.end()) {
      memory->second.listed += process.bytes;
    }
    if (const std::uint32_t job_id = finder_.job_of(process.pid, owners_); job_id != 0) {
      holders[{job_id, process.uuid}].emplace(process.pid, process);
    }
  }
  finder_.forget_dead();
  for (JobSeen &job : sample->jobs) {
    const Ranks ranks(looks_[std::to_string(job.id)].now.get());
    for (DeviceSeen &device : job.devices) {
      for (const auto &[pid, process] : holders[{job.id, device.uuid}]) {
        device.holders.push_back({pid, process.bytes, process.sm_percent, ranks.contains(pid)});
      }
    }
  }
}

void Collector::find_jobs(const std::vector<node::RegionLimits> &regions, Sample *sample) {
  owners_.clear();
  std::map<std::string, Looks> looks;
  for (const node::RegionLimits &limits : regions) {
    JobSeen job = seen_of(limits);
    owners_[job.id] = job.uid;
    Looks &own = looks[limits.name] = std::move(looks_[limits.name]);
    if (own.created != job.created) {
      own = Looks{job.created, nullptr, nullptr, {}};
      node::History past;
      if (!read_history(directory_.job(limits.name).path(), static_cast<unsigned>(job.devices.size()), &past)) {
        for (std::size_t dev = 0; dev < job.devices.size(); ++dev) {
          own.former_limits[job.devices[dev].uuid] = past.devices[dev].highest_limit;
        }
      }
    }
    sample->jobs.push_back(std::move(job));
  }
  looks_ = std::move(looks);
}

Error Collector::collect(Sample *sample) {
  std::vector<node::RegionLimits> regions;
  std::vector<Error> unreadable;
  if (Error error = list_region_limits(directory_, &regions, &unreadable)) return error;
  find_jobs(regions, sample);
  if (regions.empty()) {
    probe_.stop();  // a driver that nobody uses can be unloaded
    failures_ = pause_ = 0;
    return {};
  }
  // NVML before the books: a rank that starts in between is in the books alone.
  const Error no_nvml = ask_nvml();
  sample->nvml = !no_nvml;
  // Somebody has to come by regularly: for what reports average, and for ranks that sleep and are charged a guess.
  const bool keeps_history = samples_++ % kSamplesPerHistory == 0;
  for (JobSeen &job : sample->jobs) {
    Looks &own = looks_[std::to_string(job.id)];
    const std::string path = directory_.job(job.id).path();
    if (keeps_history && !no_nvml && own.earlier && own.now) {
      settle_contexts(path, *own.earlier, *own.now, processes_);
    }
    add_books(&job, &own);
    own.former_limits.clear();
    if (keeps_history && own.now) (void)node::add_sample(path, *own.now, now_s());
  }
  if (!no_nvml) add_holders(sample);
  return no_nvml;
}

bool Collector::is_of_job(int pid, std::uint32_t job_id) const {
  return node::JobFinder().job_of(pid, owners_) == job_id;
}

}  // namespace vgpu::watch
