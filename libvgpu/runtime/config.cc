#include "config.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/early.h"
#include "base/file_status.h"
#include "base/scoped.h"
#include "driver/flags.h"
#include "region/names.h"

namespace vgpu::runtime {

namespace {

constexpr char kNodeMagic[] = "vgpu-node ";
constexpr char kFailOpen[] = "on-error open\n";

// Both written by decide_region_expected() alone, before the flag.
char directory[256];
region::Trust trust;

__attribute__((constructor)) void read_early() { driver::region_is_expected(); }

// Nobody else may have written it, and its owner counts as the region's does.
bool may_be_believed(int fd) {
  struct stat status;
  if (!file_status(fd, &status)) return false;
  return (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && is_trusted(status.st_uid, trust, region::UserMap());
}

}  // namespace

const char *region_directory() { return driver::region_is_expected() ? directory : nullptr; }

region::Trust region_trust() { return trust; }

bool site_fails_open() {
  char path[sizeof directory + sizeof region::kNodeName];
  std::strcpy(path, directory);
  char *slash = std::strrchr(path, '/');
  if (slash == nullptr) return false;
  std::strcpy(slash + 1, region::kNodeName);
  // O_NONBLOCK: a fifo in the file's place must not hang the program.
  const ScopedFd fd(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd || !may_be_believed(fd.get())) return false;
  char text[128];  // the choice is the second line in every version of the file
  const ssize_t length = read(fd.get(), text, sizeof text - 1);
  if (length <= 0) return false;
  text[length] = '\0';
  if (std::strncmp(text, kNodeMagic, sizeof kNodeMagic - 1) != 0) return false;
  const char *second_line = std::strchr(text, '\n');
  return second_line != nullptr && std::strncmp(second_line + 1, kFailOpen, sizeof kFailOpen - 1) == 0;
}

}  // namespace vgpu::runtime

namespace vgpu::driver {

// Runs before there are threads: as our constructor, or earlier, when somebody's initialiser asks for a symbol.
Flag decide_region_expected() {
  if (environ == nullptr) return driver::Flag::undecided;
  runtime::trust = region::trust_here();
  const char *path = access(region::kSelfRegion, F_OK) == 0 ? region::kSelfRegion : std::getenv("VGPU_REGION");
  driver::Flag flag = driver::Flag::no;
  if (path != nullptr && *path != '\0') {
    // What is too long to be a path is kept cut: it cannot be attached to, and that is said when it matters.
    copy_text(runtime::directory, path);
    flag = driver::Flag::yes;
  }
  region_expected.store(flag, std::memory_order_release);
  return flag;
}

}  // namespace vgpu::driver
