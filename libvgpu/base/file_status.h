// What the kernel says of a file, without the C library's functions for it: fstat() of a newer glibc needs GLIBC_2.33, and
// statx() needs 2.28, but the library is also preloaded into images whose glibc is 2.17.
#pragma once

#include <sys/stat.h>

namespace vgpu {

// False, and errno is set: the kernel refuses.
bool file_status(int fd, struct stat *status);

// Follows symbolic links.
bool file_status(const char *path, struct stat *status);

}  // namespace vgpu
