#include "mps.h"

#include <cctype>
#include <filesystem>
#include <string>

#include "node/proc_files.h"

namespace vgpu::spank {

namespace {

constexpr char kDaemon[] = "nvidia-cuda-mps-control";

// By the file it runs: a name can be anybody's choice. The owner of /proc/PID is root for many who are not.
bool is_daemon_of_root(const std::filesystem::path &process) {
  std::error_code failure;
  if (std::filesystem::read_symlink(process / "exe", failure).filename() != kDaemon) return false;
  const std::string status = node::read_proc_file(std::stoi(process.filename()), "status");
  return status.find("\nUid:\t0\t0\t") != status.npos;
}

}  // namespace

// Not by its socket, which may be anywhere, and stays when the daemon has gone.
bool site_runs_mps() {
  std::error_code failure;
  for (const auto &entry : std::filesystem::directory_iterator("/proc", failure)) {
    const bool is_process = std::isdigit(static_cast<unsigned char>(entry.path().filename().native().front())) != 0;
    if (is_process && is_daemon_of_root(entry.path())) return true;
  }
  return false;
}

}  // namespace vgpu::spank
