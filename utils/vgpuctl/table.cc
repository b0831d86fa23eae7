#include "table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vgpu::ctl {

namespace {

// UTF-8 letters are one column wide; nothing wider gets into our tables.
std::size_t width_of(const std::string &text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

void Table::append(const std::vector<Cell> &cells, const std::vector<std::size_t> &widths, const Style &style,
                   std::string *text) const {
  std::string line = style.indent;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell &cell = cells[i];
    const std::string padding(style.parsable ? 0 : widths[i] - width_of(cell.text), ' ');
    if (i > 0) line += style.parsable ? "|" : "  ";
    if (columns_[i].align == Align::right) line += padding;
    const bool colored = style.color && *cell.color != '\0';
    if (colored) line += cell.color;
    line += cell.text;
    if (colored) line += kPlain;
    if (columns_[i].align == Align::left) line += padding;
  }
  if (!style.parsable) line.erase(line.find_last_not_of(' ') + 1);
  *text += line + '\n';
}

std::string Table::text(const Style &style) const {
  std::vector<std::size_t> widths;
  std::vector<Cell> titles;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = style.header ? width_of(columns_[i].title) : 0;
    for (const auto &row : rows_) width = std::max(width, width_of(row[i].text));
    widths.push_back(width);
    titles.push_back({columns_[i].title});
  }
  std::string text;
  if (style.header) append(titles, widths, style, &text);
  for (const auto &row : rows_) append(row, widths, style, &text);
  return text;
}

bool wants_color(bool allowed) {
  const char *terminal = std::getenv("TERM");
  const char *no_color = std::getenv("NO_COLOR");
  return allowed && isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::strcmp(terminal, "dumb") != 0;
}

bool print(const std::string &text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
  std::fprintf(stderr, "vgpuctl: cannot write: %m\n");
  return false;
}

}  // namespace vgpu::ctl
