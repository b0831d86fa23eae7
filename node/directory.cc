#include "directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace vgpu::node {

bool is_job_id(const char *name) { return *name != '\0' && name[std::strspn(name, "0123456789")] == '\0'; }

bool is_leftover(const char *name) {
  return std::strncmp(name, ".new-", 5) == 0 || std::strncmp(name, ".old-", 5) == 0 ||
         std::strncmp(name, ".tmp-", 5) == 0 || std::strncmp(name, "node.new-", 9) == 0;
}

void remove_leftover(int parent, const char *name) {
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) {
    const ScopedDirectory directory(fdopendir(fd));
    while (const dirent *entry = directory ? readdir(directory.get()) : nullptr) {
      if (entry->d_name[0] != '.' || is_leftover(entry->d_name)) unlinkat(fd, entry->d_name, 0);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
  } else {
    unlinkat(parent, name, 0);
  }
}

}  // namespace vgpu::node
