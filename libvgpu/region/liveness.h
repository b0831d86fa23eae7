// Is the rank that owns a slot still there?
//
// The kernel answers. A rank holds an OFD lock on one byte of the usage file, its token, through a mapping of one page
// and no file descriptor: the lock lives exactly as long as the address space. It survives SIGSTOP and a program that
// closes every fd, vanishes with SIGKILL, exit and exec, is not inherited by fork and is visible across PID namespaces.
// Where the PID can be looked up, /proc adds what the token cannot tell: that the kernel has also closed the dead
// process's files, so that the driver has its memory back.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/scoped.h"
#include "layout.h"

namespace vgpu::region {

// Which file a region's usage really is: paths can come to name another one.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  bool operator==(const FileIdentity &) const = default;
};

struct UsagePath {
  const char *directory = nullptr;
  FileIdentity identity;
};

// ---- the process itself ---------------------------------------------------------------------------------------------

struct SelfIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot; 0: unknown
  // The inodes of our PID and time namespaces in one word; 0: unknown. Both, because start times in /proc are shifted
  // by the reader's time namespace: in another one a living process would look like another process.
  std::uint64_t namespaces = 0;
  bool proc_is_ours = false;  // /proc shows our own PID namespace
};

SelfIdentity identify_self();
// The namespace's index in the region's table, entered there if it must be and still can be.
unsigned enter_namespace(const Usage &usage, std::uint64_t namespaces);
unsigned find_namespace(const Usage &usage, std::uint64_t namespaces);

// ---- tokens ---------------------------------------------------------------------------------------------------------

// Locks on bytes far behind the end of the usage file, where nobody else locks: one for each slot, and behind them one for
// finding out a host PID (runtime/host_pid.h).
inline constexpr std::int64_t kTokenBase = std::int64_t{1} << 40;
inline constexpr std::int64_t kDetectionByte = kTokenBase + kSlots;

enum class Token : std::uint8_t { free, held, unknown };

enum class TokenResult : std::uint8_t { taken, busy, unavailable };

// Takes the token of one slot, trying several over one open file.
class TokenTaker {
 public:
  explicit TokenTaker(const UsagePath &path);

  bool has_file() const { return static_cast<bool>(fd_); }
  TokenResult take(unsigned slot);
  void give_back(unsigned slot);
  // Hands the token over to a mapping, which holds it until drop_token(); null if that fails.
  void *keep() const;

 private:
  ScopedFd fd_;
};

void drop_token(void *page);

// ---- evidence and verdict -------------------------------------------------------------------------------------------

enum class ProcessState : std::uint8_t {
  absent,    // no such process
  replaced,  // the PID belongs to a process that started at another time
  zombie,    // dead, its files closed, waiting to be reaped
  leaving,   // on its way out: the kernel may still hold its files and so its device memory
  running,
  unknown,  // could not be looked up
};

struct ProcStat {
  char state = 0;
  std::uint64_t flags = 0;
  std::uint64_t threads = 0;
  std::uint64_t start_time = 0;
};

// Parses the text of /proc/<pid>/stat; process names may hold spaces and parentheses.
bool parse_proc_stat(const char *text, ProcStat *stat);
ProcessState classify(const ProcStat &stat, std::uint64_t start_low_bits);

enum class Verdict : std::uint8_t { alive, dead, dead_after_grace };

inline constexpr std::uint64_t kGraceMs = 1000;

struct Evidence {
  bool same_namespace = false;
  bool has_token = false;  // the owner word says that the rank took its token
  Token token = Token::unknown;
  ProcessState process = ProcessState::unknown;
};

// Pure. What cannot be told counts as alive.
Verdict judge(const Evidence &evidence);

// How hard to look. /proc costs ten times what the token does, and a held token means a living rank but for one case:
// a forked child holds the token of a dead parent whose PID has gone to somebody else. That one needs a second of grace
// anyway, so a thorough look once a second finds it as soon as it may be found. For a list that is read by people a held
// token will do.
enum class Effort : std::uint8_t { tokens, quick, thorough };

// Gathers evidence for one sweep. Uses file descriptors only while it lives.
class LivenessCheck {
 public:
  LivenessCheck(const UsagePath &path, const Usage &usage, Effort effort = Effort::thorough)
      : LivenessCheck(path, usage, effort, identify_self()) {}
  LivenessCheck(const UsagePath &path, const Usage &usage, Effort effort, const SelfIdentity &self);

  Verdict examine(unsigned slot, std::uint64_t owner);
  Token token(unsigned slot);
  // The slot belongs to this very process as it was before exec.
  bool is_my_former_image(unsigned slot, std::uint64_t owner);

 private:
  ProcessState look_up(const OwnerWord &owner, Token token) const;

  UsagePath path_;
  Effort effort_;
  SelfIdentity self_;
  unsigned namespace_;
  bool tried_open_ = false;
  ScopedFd usage_fd_;
};

}  // namespace vgpu::region
