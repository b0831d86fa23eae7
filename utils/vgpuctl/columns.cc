#include "columns.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <iterator>

#include "node/values.h"

namespace vgpu::ctl {

namespace {

constexpr auto kLeft = Table::Align::left;
constexpr auto kRight = Table::Align::right;
constexpr std::size_t kUsual = 13;  // the first ones

template <typename T>
std::string number_text(const std::optional<T> &number) {
  return number ? std::to_string(*number) : kUnknown;
}

std::string time_text(std::uint64_t seconds) {
  if (seconds == 0) return kUnknown;
  const auto since = static_cast<std::time_t>(seconds);
  std::tm parts = {};
  char text[32];
  if (localtime_r(&since, &parts) == nullptr || std::strftime(text, sizeof text, "%FT%T", &parts) == 0) return kUnknown;
  return text;
}

using R = const RegionView &;
using D = const DeviceView &;
using S = const ColumnStyle &;

const Column kColumns[] = {
    {"JOBID", kRight, [](R r, D, S) { return r.job; }},
    {"USER", kLeft, [](R r, D, S) { return r.user; }},
    {"GPU", kRight, [](R, D d, S) { return d.gpu; }},
    {"MEM-USED", kRight, [](R, D d, S s) { return size_text(d.used, s); }},
    {"MEM-LIMIT", kRight, [](R, D d, S s) { return size_text(d.limit, s); }},
    {"MEM%", kRight, [](R, D d, S) { return d.used ? percent_text(d.memory_ratio()) : kUnknown; }},
    {"PEAK", kRight, [](R, D d, S s) { return size_text(d.peak, s); }},
    {kSmUsed, kRight, [](R, D d, S) { return percent_text(d.sm_used); }},
    {"SM-LIMIT", kRight, [](R, D d, S) { return std::to_string(d.sm_percent) + "%"; }},
    {"PROCS", kRight, [](R, D d, S) { return number_text(d.processes); }},
    {"REFUSED", kRight, [](R, D d, S) { return number_text(d.refused); }},
    {"THROTTLED", kRight, [](R, D d, S) { return seconds_text(d.throttled_s); }},
    {"STATE", kLeft, [](R, D d, S) { return std::string(name_of(d.state)); }},
    {"UUID", kLeft, [](R, D d, S) { return d.uuid; }},
    {"PCI", kLeft, [](R, D d, S) { return d.pci.empty() ? kUnknown : d.pci; }},
    {"NUMA", kRight, [](R, D d, S) { return d.numa_node < 0 ? kUnknown : std::to_string(d.numa_node); }},
    {"LAUNCHES", kRight, [](R, D d, S) { return number_text(d.launches); }},
    {"UID", kRight, [](R r, D, S) { return std::to_string(r.uid); }},
    {"CREATED", kLeft, [](R r, D, S) { return time_text(r.created); }},
};

std::string upper(std::string text) {
  for (char &c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

Error no_such_column(const std::string &name) {
  std::string known;
  for (const Column &column : kColumns) known += std::string(known.empty() ? "" : ",") + column.title;
  return make_error(Fault::invalid, "vgpuctl: there is no column '%.40s'; there are %s", name.c_str(), known.c_str());
}

const char *color_of(State state) {
  if (state == State::stale) return kRed;
  return state == State::at_limit ? kYellow : "";
}

}  // namespace

std::string size_text(const std::optional<std::uint64_t> &bytes, const ColumnStyle &style) {
  if (!bytes) return kUnknown;
  return style.bytes ? std::to_string(*bytes) : node::format_bytes(*bytes);
}

std::string seconds_text(const std::optional<double> &seconds) {
  if (!seconds) return kUnknown;
  char text[64];
  std::snprintf(text, sizeof text, "%.1fs", *seconds);
  return text;
}

std::string percent_text(const std::optional<double> &ratio) {
  if (!ratio) return kUnknown;
  char text[64];
  std::snprintf(text, sizeof text, "%.0f%%", 100 * *ratio);
  return text;
}

Error choose_columns(const std::string &names, std::vector<const Column *> *columns) {
  std::vector<const Column *> chosen;
  if (names.empty()) {
    for (std::size_t i = 0; i < kUsual; ++i) chosen.push_back(&kColumns[i]);
  }
  for (std::size_t start = 0; !names.empty() && start <= names.size();) {
    const std::size_t end = std::min(names.find(',', start), names.size());
    const std::string name = upper(names.substr(start, end - start));
    const auto *column = std::find_if(std::begin(kColumns), std::end(kColumns),
                                      [&](const Column &candidate) { return name == candidate.title; });
    if (column == std::end(kColumns)) return no_such_column(names.substr(start, end - start));
    chosen.push_back(column);
    start = end + 1;
  }
  *columns = std::move(chosen);
  return {};
}

Table make_table(const NodeView &view, const std::vector<const Column *> &columns, const ColumnStyle &style) {
  Table table;
  for (const Column *column : columns) table.add_column(column->title, column->align);
  for (const RegionView &region : view.regions) {
    for (const DeviceView &device : region.devices) {
      std::vector<Cell> cells;
      for (const Column *column : columns) {
        cells.push_back({column->text(region, device, style), color_of(device.state)});
      }
      table.add_row(std::move(cells));
    }
  }
  return table;
}

}  // namespace vgpu::ctl
