#include "scratch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "failure.h"

namespace bench {
namespace {

void remove_tree(const std::string &path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// Ends when nobody holds the other end of the pipe any more, however the benchmark ended.
[[noreturn]] void clean_up_later(int pipe_end, const std::string &path) {
  setsid();  // a ^C in the terminal is not for us
  char nothing;
  while (read(pipe_end, &nothing, 1) < 0 && errno == EINTR) {
  }
  remove_tree(path);
  _exit(0);
}

}  // namespace

ScratchDirectory::ScratchDirectory() {
  const char *temporary = std::getenv("TMPDIR");
  path_ = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : temporary != nullptr ? temporary : "/tmp";
  path_ += "/vgpu-bench.XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) throw Failure("mkdtemp %s: %s", path_.c_str(), std::strerror(errno));

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0 || (cleaner_ = fork()) < 0) {
    remove_tree(path_);
    throw Failure("nobody to clean up %s: %s", path_.c_str(), std::strerror(errno));
  }
  if (cleaner_ == 0) {
    close(ends[1]);
    clean_up_later(ends[0], path_);
  }
  close(ends[0]);
  guard_ = ends[1];
}

ScratchDirectory::~ScratchDirectory() {
  close(guard_);
  waitpid(cleaner_, nullptr, 0);
}

}  // namespace bench
