// Small things about strings, files and numbers that several parts of the plugin need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace vgpu::node {

std::vector<std::string> split(std::string_view text, std::string_view separators);

// "0,2-3" as 0, 2, 3. False: that is no such list, or one with more than `most` numbers.
bool parse_index_list(std::string_view text, std::size_t most, std::vector<unsigned> *indices);

// Where a file of Slurm's may be: beside slurm.conf; where that is not told, where slurmd looks or keeps it.
std::vector<std::string> slurm_files(const std::string &name);

// At most `most` bytes; an error when the file is larger, or not a regular file. A link is not followed.
Error read_file(const std::string &path, std::size_t most, std::string *content);
// All or nothing: a temporary file in the same directory takes the place of `path`.
Error write_file(const std::string &path, const std::string &content);

}  // namespace vgpu::node
