// vgpuctl gc: what jobs have left that ended without their epilog.
//
// A region goes only if all of this is so: slurmctld answers and does not know the job; no step of it runs here; it is
// older than the grace; and under the admission lock it is still the same directory. A job that has no
// process (an idle salloc) is known to slurmctld and keeps its region. Processes that outlive their job keep what they have
// mapped, as after an epilog.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <sstream>

#include "commands.h"
#include "node/directory.h"
#include "node/print_error.h"
#include "node/private_region.h"
#include "node/region_limits.h"
#include "node/running_steps.h"
#include "status.h"
#include "table.h"
#include "view.h"

extern char **environ;

namespace vgpu::ctl {

namespace {

struct Candidate {
  std::string name;
  std::string job;
  dev_t device;
  ino_t inode;
};

// A variable of the caller's that filters squeue's answer would make jobs look unknown.
void unset_squeue_variables() {
  std::vector<std::string> names;
  for (char **entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "SQUEUE_", 7) == 0 || std::strncmp(*entry, "SLURM_CLUSTERS=", 15) == 0) {
      names.emplace_back(*entry, std::strcspn(*entry, "="));
    }
  }
  for (const std::string &name : names) unsetenv(name.c_str());
}

Error ask_squeue(std::set<std::string> *jobs) {
  unset_squeue_variables();
  std::FILE *answer = popen("timeout -k 5 30 squeue --noheader --all --array --states=all --format=%A", "re");
  if (answer == nullptr) return system_error("cannot start squeue");
  std::string text;
  char buffer[4096];
  for (std::size_t length; (length = std::fread(buffer, 1, sizeof buffer, answer)) > 0;) text.append(buffer, length);
  const int status = pclose(answer);
  if (status != 0) {
    return make_error(Fault::system, "squeue does not answer (status %d); nothing is removed",
                      WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  std::istringstream lines(text);
  for (std::string word; lines >> word;) {
    if (!node::is_job_id(word)) {
      return make_error(Fault::foreign, "squeue says '%.40s' where a job id should be; nothing is removed",
                        word.c_str());
    }
    jobs->insert(word);
  }
  return {};
}

class Collector {
 public:
  explicit Collector(const Options &options) : options_(options) {}

  Error open_directory() {
    directory_.reset(opendir(options_.region_dir.c_str()));
    if (directory_ && access(options_.region_dir.c_str(), W_OK) == 0) return {};
    return system_error("cannot clean %s", options_.region_dir.c_str());
  }

  // What looks abandoned, before anybody is asked. Regions that live are swept on the way.
  std::vector<Candidate> find() {
    std::vector<Candidate> found;
    while (const dirent *entry = readdir(directory_.get())) {
      const std::string name = entry->d_name;
      const std::string job = node::job_of_entry(name);
      if (job.empty() && !node::is_leftover(name)) continue;
      struct stat status;
      if (fstatat(fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (S_ISDIR(status.st_mode) && !job.empty()) tidy(name);
      if (!has_step(job) && is_old(status, name)) found.push_back({name, job, status.st_dev, status.st_ino});
    }
    return found;
  }

  Error remove(const Candidate &candidate) {
    struct stat status;
    if (fstatat(fd(), candidate.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return {};                                                                           // its epilog came after all
    if (status.st_dev != candidate.device || status.st_ino != candidate.inode) return {};  // of another job by now
    if (S_ISDIR(status.st_mode) && !candidate.job.empty()) {
      if (Error error = options_.directory().remove_job(candidate.name)) return error;
    } else {
      node::remove_leftover(fd(), candidate.name.c_str());
    }
    print("removed " + path(candidate.name) + '\n');
    return {};
  }

 private:
  int fd() const { return dirfd(directory_.get()); }
  std::string path(const std::string &name) const { return options_.directory().entry(name); }

  // Slurm's word: what the region itself says of its processes is its user's to write, and would keep its limit promised.
  bool has_step(const std::string &job) const { return steps_.contains(job); }

  // Gives back what dead ranks of a region hold beside living ones.
  void tidy(const std::string &name) {
    region::Snapshot region;
    const Error error =
        region::Snapshot::read(path(name).c_str(), region::Trust::root_or_self, region::Detail::liveness, &region);
    if (error && error.fault != Fault::not_found) node::print_error("%s", error.text);
    if (error) return;  // perhaps an `error` or `opted-out` in place of a region
    unsigned dead = 0;
    for (unsigned i = 0; i < region.ranks(); ++i) dead += is_ended(region.rank(i));
    if (dead > 0 && dead < region.ranks()) sweep(name, dead);
  }

  void sweep(const std::string &name, unsigned dead) {
    if (options_.dry_run) return;
    unsigned reclaimed = 0;
    if (const Error error = sweep_region(path(name).c_str(), region::Trust::root_or_self, &reclaimed)) {
      node::print_error("%s", error.text);
    } else if (reclaimed > 0) {
      print("job " + name + ": gave back what " + std::to_string(reclaimed) + " of " + std::to_string(dead) +
            " dead processes held\n");
    }
  }

  // A region's own birth; of all else, its last change.
  bool is_old(const struct stat &status, const std::string &name) const {
    auto since = static_cast<std::uint64_t>(status.st_mtime);
    node::RegionLimits region;
    if (S_ISDIR(status.st_mode) &&
        !read_region_limits(options_.directory(), name, region::Trust::root_or_self, &region)) {
      since = std::max(since, region.created);
    }
    const auto now = static_cast<std::uint64_t>(std::time(nullptr));
    return since + options_.grace_s <= now;
  }

  const Options &options_;
  node::ScopedDirectory directory_;
  std::set<std::string> steps_ = node::jobs_with_steps();
};

Error collect(const Options &options, unsigned *found) {
  Collector collector(options);
  if (Error error = collector.open_directory()) return error;
  std::vector<Candidate> candidates = collector.find();
  const bool has_job = std::any_of(candidates.begin(), candidates.end(), [](const auto &c) { return !c.job.empty(); });
  if (has_job) {
    std::set<std::string> known;
    if (Error error = ask_squeue(&known)) return error;
    std::erase_if(candidates, [&](const Candidate &candidate) { return known.contains(candidate.job); });
  }
  *found = static_cast<unsigned>(candidates.size());
  if (options.dry_run) {
    for (const Candidate &candidate : candidates) print("stale " + options.directory().entry(candidate.name) + '\n');
    return {};
  }
  if (candidates.empty()) return {};
  node::DirectoryLock lock;
  if (Error error = options.directory().lock_admission(&lock)) return error;
  for (const Candidate &candidate : candidates) {
    if (Error error = collector.remove(candidate)) return error;
  }
  return {};
}

// What vgpu-runs of the caller's that were killed have left. Nobody has to be asked, and there is no grace: the kernel knows.
unsigned collect_own(const Options &options) {
  std::vector<std::string> paths;
  const auto leftovers = options.dry_run ? node::Leftovers::keep : node::Leftovers::remove;
  const std::string runtime = node::runtime_directory(std::getenv("XDG_RUNTIME_DIR"));
  if (const Error error = node::find_abandoned(runtime, leftovers, &paths)) node::print_error("%s", error.text);
  for (const std::string &path : paths) print((options.dry_run ? "stale " : "removed ") + path + '\n');
  return static_cast<unsigned>(paths.size());
}

}  // namespace

int gc(const Options &options) {
  const unsigned own = collect_own(options);
  unsigned found = 0;
  const Error error = collect(options, &found);
  if (error) return complain(error);
  return options.dry_run && own + found > 0 ? kStale : kOk;
}

}  // namespace vgpu::ctl
