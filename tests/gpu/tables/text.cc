// Tables and figures as people read them.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "tables.h"

namespace tables {

Table::Table(size_t width, const std::vector<std::string> &titles) : widths_{width} {
  for (size_t i = 1; i < titles.size(); ++i)
    widths_.push_back(titles[i].empty() ? 0 : std::max<size_t>(titles[i].size(), 8));
  add(titles);
}

void Table::add(const std::vector<std::string> &row) {
  std::string line;
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string gap(widths_[i] - std::min(widths_[i], row[i].size()), ' ');
    line += i == 0 ? row[i] + gap : "  " + gap + row[i];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::string format(const char *text, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(line, sizeof line, text, arguments);
  va_end(arguments);
  return line;
}

std::string mib(std::uint64_t bytes) { return format("%.1f", static_cast<double>(bytes) / (1 << 20)); }

std::string mib_signed(std::int64_t bytes) { return format("%+.1f", static_cast<double>(bytes) / (1 << 20)); }

std::string size_name(std::uint64_t bytes) {
  constexpr std::uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
  const auto whole = [](std::uint64_t count, const char *unit) { return std::to_string(count) + ' ' + unit; };
  if (bytes < kKiB) return whole(bytes, "B");
  if (bytes % kMiB == 0) return whole(bytes / kMiB, "MiB");
  if (bytes % kKiB == 0) return whole(bytes / kKiB, "KiB");
  // A little more or less than something round.
  const std::uint64_t unit = bytes >= kMiB - kKiB ? kMiB : kKiB, more = bytes % unit;
  if (more <= unit / 2) return size_name(bytes - more) + " + " + std::to_string(more);
  return size_name(bytes + unit - more) + " - " + std::to_string(unit - more);
}

void conclude(const std::string &sentence) {
  std::printf("-> %s\n", sentence.c_str());
  std::fflush(stdout);
}

}  // namespace tables
