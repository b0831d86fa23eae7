#include "small_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/scoped.h"
#include "region/names.h"

namespace vgpu::node {

Error read_file(const std::string &path, std::size_t most, std::string *content) {
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    const Fault fault = errno == ENOENT ? Fault::not_found : Fault::system;
    Error error = system_error("cannot read %s", path.c_str());
    error.fault = fault;
    return error;
  }
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return system_error("cannot stat %s", path.c_str());
  if (!S_ISREG(status.st_mode) || status.st_size > static_cast<off_t>(most)) {
    return make_error(Fault::foreign, "%s is not a small regular file", path.c_str());
  }
  std::string result(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t length = pread(fd.get(), result.data(), result.size(), 0);
  if (length < 0) return system_error("cannot read %s", path.c_str());
  result.resize(static_cast<std::size_t>(length));
  *content = std::move(result);
  return {};
}

Error replace_file(const std::string &path, const std::string &content) {
  const std::size_t slash = path.rfind('/') + 1;
  std::string temporary = path.substr(0, slash) + region::kTemporaryPrefix + "XXXXXX";
  const ScopedFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return system_error("cannot create a file beside %s", path.c_str());
  if (write_all(fd.get(), content) && fchmod(fd.get(), 0644) == 0 && rename(temporary.c_str(), path.c_str()) == 0) {
    return {};
  }
  Error error = system_error("cannot write %s", path.c_str());
  unlink(temporary.c_str());
  return error;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t length = write(fd, text.data(), text.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return true;
}

}  // namespace vgpu::node
