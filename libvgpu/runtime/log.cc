#include "log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file_status.h"
#include "driver/flags.h"

namespace vgpu::runtime {

namespace {

constexpr const char *kLevels[] = {"error", "warn", "info", "debug"};

struct FileName {
  dev_t device;
  ino_t inode;
  bool operator==(const FileName &) const = default;
};

bool name_of_stderr(FileName *name) {
  struct stat status;
  if (!file_status(STDERR_FILENO, &status)) return false;
  *name = {status.st_dev, status.st_ino};
  return true;
}

// Written by the constructor alone.
LogLevel level = LogLevel::warn;
FileName first_stderr;
bool has_stderr;

__attribute__((constructor)) void read_level() {
  if (!driver::region_is_expected()) return;
  has_stderr = name_of_stderr(&first_stderr);
  const char *text = std::getenv("VGPU_LOG");
  if (text == nullptr) return;
  for (unsigned i = 0; i < sizeof kLevels / sizeof kLevels[0]; ++i) {
    if (std::strcmp(text, kLevels[i]) == 0) level = static_cast<LogLevel>(i);
  }
}

}  // namespace

bool is_logged(LogLevel wanted) { return wanted <= level; }

void log_text(LogLevel wanted, const char *text) {
  const int saved_errno = errno;
  FileName now;
  if (!is_logged(wanted) || !has_stderr || !name_of_stderr(&now) || !(now == first_stderr)) {
    errno = saved_errno;
    return;
  }
  char line[1024];
  const int length = std::snprintf(line, sizeof line - 1, "vgpu: %s", text);
  if (length < 0) return;
  std::size_t size = std::min<std::size_t>(static_cast<std::size_t>(length), sizeof line - 2);
  line[size++] = '\n';
  // Only where it is read and at once: neither SIGPIPE nor a wait is ours to give to a program.
  pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, size);
  }
  errno = saved_errno;
}

void log_format(LogLevel wanted, const char *format, ...) {
  if (!is_logged(wanted)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  log_text(wanted, text);
}

}  // namespace vgpu::runtime
