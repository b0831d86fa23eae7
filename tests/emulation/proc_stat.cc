// Lets test programs that run under qemu-user see their own /proc/<pid>/stat.
//
// qemu-user answers open("/proc/self/stat") with a line of its own making: no state, no flags, and a start time that is a
// tick late, and in a forked child its parent's. Everybody else reads the kernel's line, finds another start time there
// and takes the process for one that got a dead one's PID. The leader's line under task/ is the same, and is not forged.
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

extern "C" int open(const char *path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | __O_TMPFILE)) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  char self[16] = "";
  if (const ssize_t length = readlink("/proc/self", self, sizeof self - 1); length > 0) self[length] = '\0';
  char own[32];
  std::snprintf(own, sizeof own, "/proc/%s/stat", self);
  char leader[48];
  if (std::strcmp(path, "/proc/self/stat") == 0 || std::strcmp(path, own) == 0) {
    std::snprintf(leader, sizeof leader, "/proc/self/task/%s/stat", self);
    path = leader;
  }
  return openat(AT_FDCWD, path, flags, mode);
}
