#include "proc_files.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/scoped.h"
#include "printable.h"

namespace vgpu::node {

namespace {

constexpr std::size_t kMaxProcFile = 1 << 20;

}  // namespace

std::string read_proc_file(int pid, const char *file) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  std::string content;
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  for (ssize_t length; fd && (length = read(fd.get(), buffer, sizeof buffer)) > 0 && content.size() < kMaxProcFile;) {
    content.append(buffer, static_cast<std::size_t>(length));
  }
  return content;
}

std::string process_name(int pid) {
  std::string name = read_proc_file(pid, "comm");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return printable(name);  // its owner chose it
}

}  // namespace vgpu::node
