// Small files, read and written whole.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace vgpu::node {

// At most `most` bytes; an error when the file is larger, or not a regular file. A link is not followed.
Error read_file(const std::string &path, std::size_t most, std::string *content);

// All or nothing: a temporary file in the same directory, whose name no reader looks for, takes the place of `path`.
// Everybody may read it, whatever the umask.
Error replace_file(const std::string &path, const std::string &content);

// To the last byte. On failure errno says why.
bool write_all(int fd, std::string_view text);

}  // namespace vgpu::node
