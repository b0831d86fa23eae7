#include "trusted_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/scoped.h"

namespace vgpu::node {

namespace {

constexpr std::size_t kMaxSize = 1 << 20;

Error read_all(int fd, const std::string &path, std::string *text) {
  char buffer[16384];
  for (;;) {
    const ssize_t length = read(fd, buffer, sizeof buffer);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return system_error("cannot read %s", path.c_str());
    if (length == 0) return {};
    text->append(buffer, static_cast<std::size_t>(length));
    if (text->size() > kMaxSize) return make_error(Fault::foreign, "%s is too large to be ours", path.c_str());
  }
}

Error check_file(int fd, const std::string &path, region::Trust trust) {
  struct stat status;
  if (fstat(fd, &status) != 0) return system_error("cannot stat %s", path.c_str());
  if (!S_ISREG(status.st_mode)) return make_error(Fault::foreign, "%s is not a regular file", path.c_str());
  if (!is_trusted(status.st_uid, trust, region::UserMap())) {
    return make_error(Fault::wrong_owner, "%s belongs to uid %u, not to root", path.c_str(), status.st_uid);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(Fault::writable, "%s may be written by others than its owner (mode %03o); chmod 0644",
                      path.c_str(), status.st_mode & 0777u);
  }
  return {};
}

}  // namespace

Error read_trusted_file(const std::string &path, region::Trust trust, const char *writer, std::string *text) {
  // O_NONBLOCK: a fifo in the file's place must not hang us before we see that it is one.
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    if (errno == ELOOP) return make_error(Fault::symlink, "%s is a symbolic link; remove it", path.c_str());
    if (errno == ENOENT) return make_error(Fault::not_found, "there is no %s; %s", path.c_str(), writer);
    return system_error("cannot open %s", path.c_str());
  }
  if (Error error = check_file(fd.get(), path, trust)) return error;
  std::string read;
  if (Error error = read_all(fd.get(), path, &read)) return error;
  *text = std::move(read);
  return {};
}

}  // namespace vgpu::node
