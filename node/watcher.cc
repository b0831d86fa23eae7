#include "watcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>

#include "inherited_files.h"
#include "proc_files.h"
#include "small_files.h"

extern char **environ;

namespace vgpu::node {

namespace {

constexpr char kProgramName[] = "vgpu-watch";
constexpr std::size_t kMostTold = 16 << 10;

bool is_locked(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool systemd_has_unit() {
  if (access("/run/systemd/system", F_OK) != 0) return false;
  for (const char *folder :
       {"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}) {
    if (access((std::string(folder) + "/vgpu-watch.service").c_str(), F_OK) == 0) return true;
  }
  return false;
}

// "4711 <told>": who holds the lock, and what it was told.
struct Holder {
  int pid = 0;
  std::string told;
};

Holder read_holder(int fd) {
  std::string text(kMostTold, '\0');
  const ssize_t length = pread(fd, text.data(), text.size(), 0);
  text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  Holder holder;
  const auto [end, trouble] = std::from_chars(text.data(), text.data() + text.size(), holder.pid);
  if (trouble == std::errc() && *end == ' ') holder.told = std::string(end + 1);
  return holder;
}

void end_holder(int pid) {
  const ScopedFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (process && process_name(pid) == kProgramName) syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0);
}

}  // namespace

bool watcher_runs(const RegionDirectory &directory) {
  const ScopedFd file(open(directory.watch_file().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  return file && is_locked(file.get());
}

Error start_watcher(const SiteConfig &config, const std::vector<std::string> &keys) {
  if (config.watch.empty() || systemd_has_unit()) return {};
  if (access(config.watch.c_str(), X_OK) != 0) return system_error("cannot run %s", config.watch.c_str());
  std::vector<std::string> words = {config.watch};
  words.insert(words.end(), keys.begin(), keys.end());
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Twice, so that the caller never meets a child it does not know. The caller has threads: nothing but system calls here.
  const pid_t child = fork();
  if (child < 0) return system_error("cannot create a process for %s", config.watch.c_str());
  if (child > 0) {
    waitpid(child, nullptr, 0);
    return {};
  }
  if (setsid() < 0 || fork() != 0) _exit(0);
  close_inherited_files();
  const int null = open("/dev/null", O_RDWR);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  if (chdir("/") == 0) execve(arguments[0], arguments.data(), environ);
  _exit(127);
}

Error WatchLock::take(const RegionDirectory &directory, const std::string &told) {
  constexpr unsigned kPatience_ms = 10'000;
  path_ = directory.watch_file();
  file_ = ScopedFd(open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) return system_error("cannot open %s", path_.c_str());
  if (is_locked(file_.get())) {
    const Holder holder = read_holder(file_.get());
    if (holder.told == told) return make_error(Fault::exists, "process %d watches this node already", holder.pid);
    end_holder(holder.pid);
  }
  if (Error error = FileLock::acquire(file_.get(), 0, kPatience_ms, &lock_)) return error;
  const std::string content = std::to_string(getpid()) + " " + told;
  if (ftruncate(file_.get(), 0) != 0 || !write_all(file_.get(), content)) {
    return system_error("cannot write %s", path_.c_str());
  }
  return {};
}

bool WatchLock::is_still_there() const {
  struct stat ours;
  struct stat there;
  return fstat(file_.get(), &ours) == 0 && stat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

}  // namespace vgpu::node
