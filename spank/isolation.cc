#include "isolation.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/scoped.h"
#include "node/preload.h"
#include "node/small_files.h"

namespace vgpu::spank {

namespace {

constexpr char kPreloadFile[] = "/etc/ld.so.preload";
constexpr std::size_t kMaxPreload = 1 << 16;

// Where libvgpu looks, wherever the regions are.
constexpr const char *kPublicDir = region::kRegionDirectory;

std::string through(const ScopedFd &fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

ScopedFd open_path(const std::string &path, int flags) {
  return ScopedFd(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC | flags));
}

Error bind_read_only(const std::string &source, const std::string &target) {
  if (mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
      mount(nullptr, target.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) != 0) {
    return system_error("preload=ldso: cannot bind a file over %s", target.c_str());
  }
  return {};
}

// The job's directory is root's; its `usage`, a mount of its own, must stay writable for the ranks.
Error bind_directory(const ScopedFd &source, const std::string &target) {
  if (mkdir(target.c_str(), 0755) != 0 ||
      mount(through(source).c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return system_error("preload=ldso: cannot show the region at %s", target.c_str());
  }
  return {};
}

// A directory of the task's own lies over the node's: in it are its region, twice, and what the node has to say.
Error show_own_region(const node::SiteConfig &config, const std::string &job) {
  const ScopedFd region = open_path(config.directory().job(job).path(), O_DIRECTORY);
  if (!region) return system_error("preload=ldso: cannot open the region of job %s", job.c_str());
  const ScopedFd node = open_path(config.directory().node_file(), 0);
  if (mount("vgpu", kPublicDir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=64k,nr_inodes=16") != 0) {
    return system_error("preload=ldso: cannot mount a tmpfs on %s", kPublicDir);
  }
  const node::RegionDirectory here(kPublicDir);
  if (Error error = bind_directory(region, region::kSelfRegion)) return error;
  if (config.region_dir == kPublicDir) {
    if (Error error = bind_directory(region, here.job(job).path())) return error;
  }
  if (node) {
    const ScopedFd place(open(here.node_file().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!place) return system_error("preload=ldso: cannot create %s", here.node_file().c_str());
    if (Error error = bind_read_only(through(node), here.node_file())) return error;
  }
  if (mount(nullptr, kPublicDir, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
            nullptr) != 0) {
    return system_error("preload=ldso: cannot make %s read-only", kPublicDir);
  }
  return {};
}

}  // namespace

Error prepare_isolation(const node::SiteConfig &config) {
  // Something to bind over. An empty one changes nothing for anybody.
  const ScopedFd place(open(kPreloadFile, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!place) return system_error("preload=ldso: %s must exist, and cannot be created", kPreloadFile);
  std::string present;
  if (Error error = node::read_file(kPreloadFile, kMaxPreload, &present)) return error;
  for (char &c : present) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  const std::string wanted = node::with_library(present, config.library) + "\n";
  std::string current;
  if (!node::read_file(config.directory().preload_file(), kMaxPreload, &current) && current == wanted) return {};
  if (Error error = node::replace_file(config.directory().preload_file(), wanted)) return error;
  if (mkdir(kPublicDir, 0755) != 0 && errno != EEXIST) return system_error("cannot create %s", kPublicDir);
  return {};
}

Error isolate_task(const node::SiteConfig &config, std::uint32_t job_id) {
  if (unshare(CLONE_NEWNS) != 0) return system_error("preload=ldso: cannot create a mount namespace");
  // What the node mounts later still arrives; what is mounted here stays here.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
    return system_error("preload=ldso: cannot make the mount namespace private");
  }
  if (Error error = bind_read_only(config.directory().preload_file(), kPreloadFile)) return error;
  return show_own_region(config, std::to_string(job_id));
}

Error IsolatedThread::enter(const node::SiteConfig &config, std::uint32_t job_id) {
  constexpr char kNamespace[] = "/proc/thread-self/ns/mnt";
  outside_ = ScopedFd(open(kNamespace, O_RDONLY | O_CLOEXEC));
  if (!outside_) return system_error("preload=ldso: cannot open %s", kNamespace);
  const Error error = isolate_task(config, job_id);
  if (!error) inside_ = ScopedFd(open(kNamespace, O_RDONLY | O_CLOEXEC));
  if (!inside_) leave();
  return error;
}

void IsolatedThread::go_to(const ScopedFd &mount_namespace) {
  if (!mount_namespace) return;
  // Entering a namespace also goes to its root directory.
  char directory[4096];
  const bool known = getcwd(directory, sizeof directory) != nullptr;
  if (setns(mount_namespace.get(), CLONE_NEWNS) == 0 && known) (void)!chdir(directory);
}

}  // namespace vgpu::spank
