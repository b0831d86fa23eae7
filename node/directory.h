// The directory of regions: /run/vgpu, or where the site has it. Its names are in region/names.h; the plugin and the tools
// get the path of whatever they open there from these classes.
#pragma once

#include <dirent.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/scoped.h"
#include "region/names.h"

namespace vgpu::node {

struct CloseDirectory {
  void operator()(DIR *directory) const { closedir(directory); }
};
using ScopedDirectory = std::unique_ptr<DIR, CloseDirectory>;

// One of the directory's locks. It goes with its holder: nobody ever unlocks for somebody else.
class DirectoryLock {
 public:
  static Error acquire(const std::string &path, unsigned deadline_ms, DirectoryLock *lock);

 private:
  ScopedFd fd_;  // outlives the lock on it
  FileLock lock_;
};

// A job's place in it: its region, or what stands in for one.
class JobDirectory {
 public:
  explicit JobDirectory(std::string path) : path_(std::move(path)) {}

  const std::string &path() const { return path_; }
  std::string lock_file() const { return file(region::kLockName); }
  std::string request_file() const { return file(region::kRequestName); }
  std::string history_file() const { return file(region::kHistoryName); }
  std::string findings_file() const { return file(region::kFindingsName); }
  std::string error_file() const { return file(region::kErrorName); }
  std::string opted_out_file() const { return file(region::kOptedOutName); }

 private:
  std::string file(const char *name) const { return path_ + "/" + name; }

  std::string path_;
};

class RegionDirectory {
 public:
  explicit RegionDirectory(std::string path) : path_(std::move(path)) {}

  const std::string &path() const { return path_; }
  std::string entry(const std::string &name) const { return path_ + "/" + name; }
  std::string node_file() const { return entry(region::kNodeName); }
  std::string watch_file() const { return entry(region::kWatchName); }
  std::string preload_file() const { return entry(region::kPreloadName); }
  std::string gpus_file(std::uint32_t job_id) const { return entry(region::kGpusPrefix + std::to_string(job_id)); }
  // For mkdtemp(): what is made in there is not seen by anybody until it is renamed.
  std::string new_entry() const { return entry(std::string(region::kNewPrefix) + "XXXXXX"); }

  JobDirectory job(const std::string &name) const { return JobDirectory(entry(name)); }
  JobDirectory job(std::uint32_t job_id) const { return job(std::to_string(job_id)); }
  // The region, or what stands in for one. No error if there is nothing.
  Error remove_job(const std::string &name) const;
  Error remove_job(std::uint32_t job_id) const { return remove_job(std::to_string(job_id)); }

  // Held by whoever creates a region or raises a limit, from looking to writing.
  Error lock_admission(DirectoryLock *lock) const;
  // Held by whoever asks NVML anew, from asking to writing the node file.
  Error lock_node(unsigned deadline_ms, DirectoryLock *lock) const;

 private:
  std::string path_;
};

// The name of a job's directory. Everything else in the directory of regions (the node file, the locks) is not a number.
bool is_job_id(const std::string &name);

// The job that an entry belongs to: its directory, or the note of its GPUs. Empty: it belongs to none.
std::string job_of_entry(const std::string &name);

// Of somebody who was making or removing something. Creators of regions work under the admission lock: what they had not
// put in place when somebody else holds it, they never will.
bool is_leftover(const std::string &name);

// A file, or a directory with files in it. Follows no link.
void remove_leftover(int parent, const char *name);

}  // namespace vgpu::node
