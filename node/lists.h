// Lists as Slurm and its users write them: words with separators between them, numbers and ranges of numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vgpu::node {

// What is between any of `separators`; never an empty word.
std::vector<std::string> split(std::string_view text, std::string_view separators);

// "0,2-3" as 0, 2, 3. False: that is no such list, or one with more than `most` numbers.
bool parse_index_list(std::string_view text, std::size_t most, std::vector<unsigned> *indices);
// The same the other way round, without ranges.
std::string format_index_list(const std::vector<unsigned> &indices);

}  // namespace vgpu::node
