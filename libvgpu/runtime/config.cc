#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "early.h"
#include "region/scoped.h"

namespace vgpu {

namespace {

constexpr char kBoundRegion[] = "/run/vgpu/self";
constexpr char kNodeFile[] = "/node";
constexpr char kNodeMagic[] = "vgpu-node ";
constexpr char kFailOpen[] = "on-error open\n";

enum class Told : int { unread, nothing, region };
std::atomic<Told> told{Told::unread};
char directory[256];
bool in_job;

// Runs before there are threads: as our constructor, or earlier, when somebody's initialiser asks for a symbol.
Told read_configuration() {
  if (environ == nullptr) return Told::nothing;  // too early even for that; ask again
  in_job = std::getenv("SLURM_JOB_ID") != nullptr;
  const char *path = access(kBoundRegion, F_OK) == 0 ? kBoundRegion : std::getenv("VGPU_REGION");
  Told result = Told::nothing;
  if (path != nullptr && *path != '\0') {
    // What is too long to be a path is kept cut: it cannot be attached to, and that is said when it matters.
    copy_text(directory, path);
    result = Told::region;
  }
  told.store(result, std::memory_order_release);
  return result;
}

__attribute__((constructor)) void read_early() { region_directory(); }

// Root's file, or our own where we made the region ourselves.
bool is_trusted(int fd) {
  struct statx status;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_UID | STATX_MODE, &status) != 0) return false;
  return (status.stx_mode & (S_IWGRP | S_IWOTH)) == 0 &&
         (status.stx_uid == 0 || (!in_job && status.stx_uid == getuid()));
}

}  // namespace

const char *region_directory() {
  Told state = told.load(std::memory_order_acquire);
  if (state == Told::unread) state = read_configuration();
  return state == Told::region ? directory : nullptr;
}

bool inside_slurm_job() { return in_job; }

bool site_fails_open() {
  char path[sizeof directory + sizeof kNodeFile];
  std::strcpy(path, directory);
  char *slash = std::strrchr(path, '/');
  if (slash == nullptr) return false;
  std::strcpy(slash, kNodeFile);
  // O_NONBLOCK: a fifo in the file's place must not hang the program.
  const ScopedFd fd(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd || !is_trusted(fd.get())) return false;
  char text[128];  // the choice is the second line in every version of the file
  const ssize_t length = read(fd.get(), text, sizeof text - 1);
  if (length <= 0) return false;
  text[length] = '\0';
  if (std::strncmp(text, kNodeMagic, sizeof kNodeMagic - 1) != 0) return false;
  const char *second_line = std::strchr(text, '\n');
  return second_line != nullptr && std::strncmp(second_line + 1, kFailOpen, sizeof kFailOpen - 1) == 0;
}

}  // namespace vgpu
