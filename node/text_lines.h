// Reading our own text files: lines of fields NAME=VALUE in a fixed order, `-` for what is not known, and an end that says
// how many there were. What is not exactly that is refused.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vgpu::node {

inline bool all_of(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

inline constexpr std::string_view kUuidCharacters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/";

inline bool is_uuid(std::string_view text, std::string_view prefix) {
  return text.size() > prefix.size() && text.substr(0, prefix.size()) == prefix && all_of(text, kUuidCharacters);
}
inline bool is_device_uuid(std::string_view text) { return is_uuid(text, "GPU-") || is_uuid(text, "MIG-"); }

inline std::optional<std::int64_t> to_integer(std::string_view text, std::int64_t lowest, std::int64_t highest) {
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value < lowest || value > highest) return {};
  return value;
}

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  // False at the end, and for a last line that is not ended.
  bool next(std::string_view *line) {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return false;
    *line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    ++number_;
    return true;
  }
  static bool take(std::string_view prefix, std::string_view *line) {
    if (line->substr(0, prefix.size()) != prefix) return false;
    line->remove_prefix(prefix.size());
    return true;
  }
  bool empty() const { return rest_.empty(); }
  unsigned number() const { return number_; }

 private:
  std::string_view rest_;
  unsigned number_ = 0;
};

// One field of a `Record`: `read` says whether its text is well formed.
template <typename Record>
struct TextField {
  std::string_view name;
  bool (*read)(std::string_view text, Record *record);
};

// All fields, in their order, and nothing else. Empty on success, else what is wrong.
template <typename Record>
std::string read_fields(std::string_view line, const TextField<Record> *fields, std::size_t count, Record *record) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view item = line.substr(0, end);
    const std::string_view name = item.substr(0, item.find('='));
    if (name != fields[i].name || name.size() == item.size()) return std::string(fields[i].name);
    const std::string_view value = item.substr(name.size() + 1);
    if (value.empty() || !fields[i].read(value, record)) return std::string(fields[i].name);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return line.empty() ? "" : "text behind " + std::string(fields[count - 1].name);
}

}  // namespace vgpu::node
