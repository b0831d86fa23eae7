// The columns of `vgpuctl list`.
#pragma once

#include <string>
#include <vector>

#include "table.h"
#include "view.h"

namespace vgpu::ctl {

struct ColumnStyle {
  bool bytes = false;  // sizes as plain numbers
};

struct Column {
  const char *title;
  Table::Align align;
  std::string (*text)(const RegionView &region, const DeviceView &device, const ColumnStyle &style);
};

// `names`: as in the header, in any case, with commas between them. Empty: the usual ones.
Error choose_columns(const std::string &names, std::vector<const Column *> *columns);

Table make_table(const NodeView &view, const std::vector<const Column *> &columns, const ColumnStyle &style);

inline constexpr char kSmUsed[] = "SM-USED";

// What is not known is `-`.
inline constexpr char kUnknown[] = "-";
std::string size_text(const std::optional<std::uint64_t> &bytes, const ColumnStyle &style);
std::string seconds_text(const std::optional<double> &seconds);
std::string percent_text(const std::optional<double> &ratio);

}  // namespace vgpu::ctl
