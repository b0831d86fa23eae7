#include "audit_findings.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/scoped.h"
#include "lists.h"
#include "small_files.h"

namespace vgpu::node {

namespace {

constexpr std::size_t kMost = 64 << 10;

}  // namespace

Error leave_finding(const JobDirectory &job, const std::string &sentence) {
  const std::string path = job.findings_file();
  const ScopedFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || !write_all(file.get(), sentence + "\n")) return system_error("cannot write %s", path.c_str());
  return {};
}

std::vector<std::string> take_findings(const JobDirectory &job) {
  const std::string path = job.findings_file();
  const std::string taken = path + "." + std::to_string(getpid());
  // Whoever renames it has it; what is found later goes into a new one.
  if (rename(path.c_str(), taken.c_str()) != 0) return {};
  std::string text;
  const Error unreadable = read_file(taken, kMost, &text);
  unlink(taken.c_str());
  return unreadable ? std::vector<std::string>() : split(text, "\n");
}

}  // namespace vgpu::node
