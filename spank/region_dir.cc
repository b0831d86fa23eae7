#include "region_dir.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "job_files.h"
#include "log.h"
#include "node/directory.h"
#include "node/small_files.h"

namespace vgpu::spank {

namespace {

bool is_mount_point(const std::string &path) {
  struct stat here;
  struct stat above;
  return lstat(path.c_str(), &here) == 0 && lstat((path + "/..").c_str(), &above) == 0 && here.st_dev != above.st_dev;
}

bool is_empty(const std::string &path) {
  const node::ScopedDirectory directory(opendir(path.c_str()));
  if (!directory) return false;
  while (const dirent *entry = readdir(directory.get())) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) return false;
  }
  return true;
}

// Users own files in there and can let them grow: they must fill nothing but this. Never over regions that are there.
void mount_own_filesystem(const node::SiteConfig &config) {
  if (config.region_size == 0 || is_mount_point(config.region_dir) || !is_empty(config.region_dir)) return;
  const std::string options = "mode=0755,nr_inodes=65536,size=" + std::to_string(config.region_size);
  if (mount("vgpu", config.region_dir.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options.c_str()) != 0) {
    log_error("cannot mount a tmpfs on %s (%s); regions share the file system around it", config.region_dir.c_str(),
              std::strerror(errno));
  }
}

}  // namespace

Error first_start(const node::SiteConfig &config, std::int64_t *seconds) {
  constexpr std::size_t kLongest = 32;
  const std::string file = config.directory().since_file();
  std::string text;
  const Error error = node::read_file(file, kLongest, &text);
  if (!error) {
    *seconds = std::atoll(text.c_str());
    return {};
  }
  if (error.fault != Fault::not_found) return error;
  *seconds = std::time(nullptr);
  return node::replace_file(file, std::to_string(*seconds) + "\n");
}

Error make_region_dir(const node::SiteConfig &config) {
  const char *path = config.region_dir.c_str();
  if (mkdir(path, 0755) != 0) {
    if (errno == EEXIST) return {};
    return system_error("cannot create %s", path);
  }
  // The umask is slurmd's business.
  if (chmod(path, 0755) != 0) return system_error("cannot set the mode of %s", path);
  mount_own_filesystem(config);
  return {};
}

// Creators work under the admission lock: what they had not put in place when we hold it, they never will.
Error clean_region_dir(const node::SiteConfig &config) {
  mount_own_filesystem(config);
  node::DirectoryLock lock;
  if (Error error = config.directory().lock_admission(&lock)) return error;
  const node::ScopedDirectory directory(opendir(config.region_dir.c_str()));
  if (!directory) return system_error("cannot read %s", config.region_dir.c_str());
  while (const dirent *entry = readdir(directory.get())) {
    if (node::is_leftover(entry->d_name)) node::remove_leftover(dirfd(directory.get()), entry->d_name);
  }
  return {};
}

Error remove_job(const node::SiteConfig &config, std::uint32_t job_id) {
  if (access(config.region_dir.c_str(), F_OK) != 0) return {};
  const Error error = JobFiles(config, job_id).remove_gpus();
  if (Error trouble = config.directory().remove_job(job_id)) return trouble;
  return error;
}

}  // namespace vgpu::spank
