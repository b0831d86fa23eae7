// Rows and columns, for people or for programs.
#pragma once

#include <string>
#include <vector>

namespace vgpu::ctl {

struct Cell {
  std::string text;
  const char *color = "";  // an SGR sequence
};

class Table {
 public:
  enum class Align : unsigned char { left, right };
  struct Style {
    bool header = true;
    bool parsable = false;  // a | between cells and no padding
    bool color = false;
    std::string indent;
  };

  void add_column(const std::string &title, Align align) { columns_.push_back({title, align}); }
  void add_row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string text(const Style &style) const;

 private:
  struct Column {
    std::string title;
    Align align;
  };
  void append(const std::vector<Cell> &cells, const std::vector<std::size_t> &widths, const Style &style,
              std::string *text) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

inline constexpr char kRed[] = "\033[31m";
inline constexpr char kYellow[] = "\033[33m";
inline constexpr char kGreen[] = "\033[32m";
inline constexpr char kPlain[] = "\033[0m";

// Whether standard output is a terminal that shows colours, and nobody objects.
bool wants_color(bool allowed);

// False, with a sentence on stderr, when it cannot be written.
bool print(const std::string &text);

}  // namespace vgpu::ctl
