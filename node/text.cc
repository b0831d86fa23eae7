#include "text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "base/scoped.h"
#include "io.h"
#include "region/names.h"

namespace vgpu::node {

namespace {

bool parse_number(std::string_view text, unsigned *number) {
  const char *end = text.data() + text.size();
  const auto [stopped, reason] = std::from_chars(text.data(), end, *number);
  return reason == std::errc() && stopped == end;
}

}  // namespace

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find_first_of(separators);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

bool parse_index_list(std::string_view text, std::size_t most, std::vector<unsigned> *indices) {
  std::vector<unsigned> result;
  for (const std::string &part : split(text, ",")) {
    const std::size_t dash = part.find('-');
    unsigned first = 0;
    unsigned last = 0;
    if (!parse_number(std::string_view(part).substr(0, dash), &first)) return false;
    last = first;
    if (dash != part.npos && !parse_number(std::string_view(part).substr(dash + 1), &last)) return false;
    if (last < first || last - first >= most || result.size() + (last - first) >= most) return false;
    for (unsigned index = first; index <= last; ++index) result.push_back(index);
  }
  *indices = std::move(result);
  return true;
}

std::vector<std::string> slurm_files(const std::string &name) {
  std::vector<std::string> paths;
  if (const char *slurm_conf = std::getenv("SLURM_CONF")) {
    const std::string path(slurm_conf);
    paths.push_back(name == "slurm.conf" ? path : path.substr(0, path.rfind('/') + 1) + name);
  }
  for (const char *folder : {"/run/slurm/conf/", "/etc/slurm/", "/etc/slurm-llnl/"}) paths.push_back(folder + name);
  return paths;
}

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

Error write_file(const std::string &path, const std::string &content) {
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

}  // namespace vgpu::node
