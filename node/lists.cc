#include "lists.h"

#include <charconv>

namespace vgpu::node {

namespace {

bool parse_number(std::string_view text, unsigned *number) {
  const char *end = text.data() + text.size();
  const auto [stopped, reason] = std::from_chars(text.data(), end, *number);
  return reason == std::errc() && stopped == end;
}

}  // namespace

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find_first_of(separators);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

bool parse_index_list(std::string_view text, std::size_t most, std::vector<unsigned> *indices) {
  std::vector<unsigned> result;
  for (const std::string &part : split(text, ",")) {
    const std::size_t dash = part.find('-');
    unsigned first = 0;
    unsigned last = 0;
    if (!parse_number(std::string_view(part).substr(0, dash), &first)) return false;
    last = first;
    if (dash != part.npos && !parse_number(std::string_view(part).substr(dash + 1), &last)) return false;
    if (last < first || last - first >= most || result.size() + (last - first) >= most) return false;
    for (unsigned index = first; index <= last; ++index) result.push_back(index);
  }
  *indices = std::move(result);
  return true;
}

std::string format_index_list(const std::vector<unsigned> &indices) {
  std::string text;
  for (const unsigned index : indices) text += (text.empty() ? "" : ",") + std::to_string(index);
  return text;
}

}  // namespace vgpu::node
