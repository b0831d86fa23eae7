// A file on a file system of its own, which has room for it and for nothing else. Its owner may write it, and would otherwise
// let it grow until no other job's files have room.
//
// For root. The file's name in the directory is an empty file of root's that nobody may open, over which the real one is
// mounted: where the mount is missing (another mount namespace, somebody's umount) there is nothing to count in, and whoever
// needs it fails. One mount for each file; whoever has it mapped or open keeps it.
#pragma once

#include <sys/stat.h>

#include <cstddef>

#include "base/error.h"
#include "base/scoped.h"

namespace vgpu::region {

// Of exactly `size` bytes, all of them there, mode 0600.
Error make_on_own_filesystem(int directory_fd, const char *name, std::size_t size, ScopedFd *file);

// Removes an entry of the directory and whatever is mounted over it here. False: it is still there, see errno.
bool remove_entry(int directory_fd, const char *name);

// What is seen of such a file where its file system is not mounted.
bool is_uncovered(const struct stat &status);

}  // namespace vgpu::region
