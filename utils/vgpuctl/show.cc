// vgpuctl show: all that is known of one job.
#include <cstdio>
#include <ctime>

#include "columns.h"
#include "commands.h"
#include "json.h"
#include "node/node_name.h"
#include "node/print_error.h"
#include "node/small_files.h"
#include "node/used_memory.h"
#include "node/values.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

constexpr char kTorn[] = "?";  // its writer was stopped or killed while it wrote, or we read too slowly

std::string line(const std::string &what, const std::string &value) {
  std::string text = "  " + what + ":";
  text.resize(std::max<std::size_t>(text.size() + 1, 16), ' ');
  return text + value + '\n';
}

std::string device_text(const DeviceView &device, const ColumnStyle &style) {
  std::string text = "GPU " + device.gpu + "  " + device.uuid + '\n';
  std::string memory = size_text(device.used, style) + " of " + size_text(device.limit, style);
  if (device.used) memory += " (" + percent_text(device.memory_ratio()) + ")";
  if (device.peak) memory += ", peak " + size_text(device.peak, style);
  if (device.refused) memory += ", " + std::to_string(*device.refused) + " refused";
  text += line("memory", memory);
  std::string sm = std::to_string(device.sm_percent) + "%";
  if (device.launches) sm += ", " + std::to_string(*device.launches) + " launches";
  if (device.throttled_s) sm += ", throttled " + seconds_text(device.throttled_s);
  text += line("SM limit", sm);
  std::string place = "PCI " + (device.pci.empty() ? kUnknown : device.pci) + ", NUMA node " +
                      (device.numa_node < 0 ? kUnknown : std::to_string(device.numa_node)) + ", cores " +
                      (device.cpus.empty() ? kUnknown : device.cpus);
  if (device.device_bytes != 0) place += ", " + size_text(device.device_bytes, style) + " in all";
  if (device.usable_bytes != 0 && device.usable_bytes != device.device_bytes) {
    place += ", " + size_text(device.usable_bytes, style) + " usable";
  }
  if (device.context.bytes != 0) {
    const bool is_sites = device.context.source == region::ContextSource::site;
    text += line("context", size_text(device.context.bytes, style) + " for each process, " +
                                (is_sites ? "set by the site" : "measured on this GPU"));
  }
  text += line("device", place);
  text += line("state", name_of(device.state));
  return text;
}

Table rank_table(const RegionView &region, const ColumnStyle &style) {
  Table table;
  constexpr auto kRight = Table::Align::right;
  for (const char *title : {"PID", "GPU", "CONTEXT", "MODULE", "DATA", "OTHER", "PEAK", "REFUSED", "LAUNCHES"}) {
    table.add_column(title, kRight);
  }
  table.add_column("THROTTLED", kRight);
  table.add_column("ALIVE", Table::Align::left);
  const region::Snapshot &snapshot = *region.snapshot;
  for (unsigned i = 0; i < snapshot.ranks(); ++i) {
    const region::RankSnapshot &rank = snapshot.rank(i);
    const auto info = [&](const std::string &text) { return Cell{rank.info_valid ? text : kTorn}; };
    const auto hooked = [&](const std::string &text) { return region.launch_hooks ? info(text) : Cell{kUnknown}; };
    for (unsigned dev = 0; dev < region.devices.size(); ++dev) {
      std::vector<Cell> row = {{std::to_string(rank.owner.pid)}, {region.devices[dev].gpu}};
      std::uint64_t held = 0;
      for (unsigned kind = 0; kind < region::kKinds; ++kind) {
        const std::uint64_t bytes = node::used_memory(snapshot, i, dev, static_cast<region::Kind>(kind));
        held += bytes;
        row.push_back({region.devices[dev].ranks_add_up ? size_text(bytes, style) : kTorn});
      }
      // What belongs to the rank and not to one of its GPUs stands in its first line.
      const bool first = dev == 0;
      if (!first && held == 0) continue;
      row.push_back(first ? info(size_text(region::bytes_of(rank.info.peak_units & region::kMaxUnits), style))
                          : Cell{});
      row.push_back(first ? info(std::to_string(rank.info.refused)) : Cell{});
      row.push_back(first ? hooked(std::to_string(rank.info.launches)) : Cell{});
      row.push_back(first ? hooked(seconds_text(static_cast<double>(rank.info.throttled_ns) / 1e9)) : Cell{});
      row.push_back(first ? (is_ended(rank) ? Cell{"no", kRed} : Cell{"yes"}) : Cell{});
      table.add_row(std::move(row));
    }
  }
  return table;
}

std::string region_text(const RegionView &region, const Options &options) {
  const ColumnStyle style = {options.bytes};
  std::string text = (region.is_private ? "vgpu-run " : "job ") + region.job + " of " + region.user + " on " +
                     node::node_name() + '\n';
  for (const DeviceView &device : region.devices) text += device_text(device, style);
  if (region.damage) return text + region.damage.text + '\n';
  if (!region.snapshot) return text + "its use can be seen by " + region.user + " and by root\n";
  const Table ranks = rank_table(region, style);
  if (ranks.empty()) return text + "no process has used it yet\n";
  return text + ranks.text({true, false, wants_color(options.color), ""});
}

// Why a job has no region, if its prolog left a word.
std::string refusal_of(const Options &options) {
  constexpr std::size_t kMaxSentence = 1 << 16;
  std::string sentence;
  const Error none = node::read_file(options.directory().job(options.job).error_file(), kMaxSentence, &sentence);
  return none ? "" : sentence;
}

}  // namespace

int show(const Options &options) {
  RegionView region;
  if (const Error error = look_at_job(options, region::Detail::liveness, &region)) {
    const int status = complain(error);
    if (const std::string why = refusal_of(options); status == kNoJob && !why.empty()) {
      node::print_error("%s", why.c_str());
    }
    return status;
  }
  return print(options.json ? show_json(node::node_name(), region) : region_text(region, options)) ? kOk : kRefused;
}

}  // namespace vgpu::ctl
