#include "liveness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file_status.h"
#include "files.h"
#include "steps.h"

namespace vgpu::region {

namespace {

constexpr std::uint64_t kFlagExiting = 0x4;  // PF_EXITING, field 9 of /proc/<pid>/stat

struct flock token_lock(unsigned slot) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kTokenBase + static_cast<off_t>(slot);
  lock.l_len = 1;
  return lock;
}

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

bool read_proc_stat(const char *path, ProcStat *stat) {
  const ScopedFd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  char text[1024];
  const ssize_t length = read(fd.get(), text, sizeof text - 1);
  if (length <= 0) return false;
  text[length] = '\0';
  return parse_proc_stat(text, stat);
}

std::uint64_t inode_of(const char *path) {
  struct stat status;
  return file_status(path, &status) ? status.st_ino : 0;
}

}  // namespace

SelfIdentity identify_self() {
  SelfIdentity self;
  self.pid = getpid();
  // Inode numbers of namespaces have 32 bits. A kernel without time namespaces shows none.
  const std::uint64_t pid_namespace = inode_of("/proc/self/ns/pid");
  if (pid_namespace != 0) self.namespaces = pid_namespace ^ inode_of("/proc/self/ns/time") << 32;
  ProcStat stat;
  if (read_proc_stat("/proc/self/stat", &stat)) self.start_time = stat.start_time;
  // A new PID namespace without a /proc of its own sees the outer one, in which our PIDs mean other processes.
  char link[24];
  const ssize_t length = readlink("/proc/self", link, sizeof link - 1);
  if (length > 0) {
    link[length] = '\0';
    self.proc_is_ours = std::atol(link) == self.pid;
  }
  return self;
}

unsigned find_namespace(const Usage &usage, std::uint64_t namespaces) {
  if (namespaces == 0) return kUnknownNamespace;
  for (unsigned index = 0; index < kUnknownNamespace; ++index) {
    if (usage.pid_namespace(index).load(std::memory_order_relaxed) == namespaces) return index;
  }
  return kUnknownNamespace;
}

unsigned enter_namespace(const Usage &usage, std::uint64_t namespaces) {
  if (namespaces == 0) return kUnknownNamespace;
  for (unsigned index = 0; index < kUnknownNamespace; ++index) {
    std::uint64_t entry = usage.pid_namespace(index).load(std::memory_order_relaxed);
    // Relaxed: the entry is a number that never changes again and that nothing else is reached through.
    if (entry == 0 &&
        usage.pid_namespace(index).compare_exchange_strong(entry, namespaces, std::memory_order_relaxed)) {
      VGPU_STEP(attach_namespace_entered);
      return index;
    }
    if (entry == namespaces) return index;
  }
  return kUnknownNamespace;
}

TokenTaker::TokenTaker(const UsagePath &path) : fd_(reopen_usage(path, O_RDWR)) {}

TokenResult TokenTaker::take(unsigned slot) {
  if (!fd_) return TokenResult::unavailable;
  struct flock lock = token_lock(slot);
  if (fcntl(fd_.get(), F_OFD_SETLK, &lock) == 0) return TokenResult::taken;
  return errno == EAGAIN || errno == EACCES ? TokenResult::busy : TokenResult::unavailable;
}

void TokenTaker::give_back(unsigned slot) {
  struct flock lock = token_lock(slot);
  lock.l_type = F_UNLCK;
  fcntl(fd_.get(), F_OFD_SETLK, &lock);
}

void *TokenTaker::keep() const {
  const std::size_t size = page_size();
  void *page = mmap(nullptr, size, PROT_NONE, MAP_SHARED, fd_.get(), 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, size, MADV_DONTFORK) == 0) return page;
  munmap(page, size);
  return nullptr;
}

void drop_token(void *page) {
  if (page != nullptr) munmap(page, page_size());
}

bool parse_proc_stat(const char *text, ProcStat *stat) {
  const char *after_name = std::strrchr(text, ')');
  if (after_name == nullptr) return false;
  unsigned long flags = 0;
  unsigned long threads = 0;
  unsigned long long start_time = 0;
  // Fields 3 state, 9 flags, 20 num_threads and 22 starttime; see proc(5).
  const int found =
      std::sscanf(after_name + 1, " %c %*d %*d %*d %*d %*d %lu %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %lu %*d %llu",
                  &stat->state, &flags, &threads, &start_time);
  stat->flags = flags;
  stat->threads = threads;
  stat->start_time = start_time;
  return found == 4;
}

ProcessState classify(const ProcStat &stat, std::uint64_t start_low_bits) {
  if ((stat.start_time & OwnerWord::Start::kMask) != start_low_bits) return ProcessState::replaced;
  const bool ended = stat.state == 'Z' || stat.state == 'X';
  // A leader that ended before its threads: the process lives on, or its last thread is still closing files. Which of
  // the two, the token tells.
  if (ended) return stat.threads <= 1 ? ProcessState::zombie : ProcessState::leaving;
  return (stat.flags & kFlagExiting) != 0 ? ProcessState::leaving : ProcessState::running;
}

Verdict judge(const Evidence &evidence) {
  const bool gone = evidence.same_namespace &&
                    (evidence.process == ProcessState::absent || evidence.process == ProcessState::replaced ||
                     evidence.process == ProcessState::zombie);
  if (!evidence.has_token) return gone ? Verdict::dead : Verdict::alive;

  switch (evidence.token) {
    case Token::held:
      // A child forked in the instant between open and close of attach can hold a dead parent's token.
      return gone ? Verdict::dead_after_grace : Verdict::alive;
    case Token::free:
      if (gone) return Verdict::dead;
      // The address space is gone but the process still closes its files: its memory is not back yet.
      if (evidence.same_namespace && evidence.process == ProcessState::leaving) return Verdict::alive;
      return Verdict::dead_after_grace;
    case Token::unknown:
      break;
  }
  return evidence.same_namespace && evidence.process == ProcessState::absent ? Verdict::dead : Verdict::alive;
}

LivenessCheck::LivenessCheck(const UsagePath &path, const Usage &usage, Effort effort, const SelfIdentity &self)
    : path_(path), effort_(effort), self_(self), namespace_(find_namespace(usage, self_.namespaces)) {}

Token LivenessCheck::token(unsigned slot) {
  if (!tried_open_) {
    tried_open_ = true;
    usage_fd_ = reopen_usage(path_, O_RDONLY);
  }
  if (!usage_fd_) return Token::unknown;
  struct flock lock = token_lock(slot);
  if (fcntl(usage_fd_.get(), F_OFD_GETLK, &lock) != 0) return Token::unknown;
  return lock.l_type == F_UNLCK ? Token::free : Token::held;
}

ProcessState LivenessCheck::look_up(const OwnerWord &owner, Token token) const {
  const auto pid = static_cast<pid_t>(owner.pid);
  // kill() first: it needs no file descriptor, and unlike /proc it does not hide other users' processes.
  if (kill(pid, 0) != 0 && errno == ESRCH) return ProcessState::absent;
  if (!self_.proc_is_ours || (token == Token::held && effort_ == Effort::quick)) return ProcessState::unknown;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  ProcStat stat;
  if (!read_proc_stat(path, &stat)) return ProcessState::unknown;
  return classify(stat, owner.start);
}

Verdict LivenessCheck::examine(unsigned slot, std::uint64_t word) {
  const OwnerWord owner = OwnerWord::unpack(word);
  Evidence evidence;
  evidence.same_namespace = namespace_ != kUnknownNamespace && owner.ns == namespace_;
  evidence.has_token = owner.locked != 0;
  if (evidence.has_token) evidence.token = token(slot);
  const bool will_do = effort_ == Effort::tokens && evidence.token == Token::held;
  if (evidence.same_namespace && !will_do) evidence.process = look_up(owner, evidence.token);
  return judge(evidence);
}

bool LivenessCheck::is_my_former_image(unsigned slot, std::uint64_t word) {
  const OwnerWord owner = OwnerWord::unpack(word);
  return namespace_ != kUnknownNamespace && owner.ns == namespace_ &&
         owner.pid == static_cast<std::uint64_t>(self_.pid) &&
         owner.start == (self_.start_time & OwnerWord::Start::kMask) && token(slot) == Token::free;
}

}  // namespace vgpu::region
