// vgpuctl list: one row for each job and GPU.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "columns.h"
#include "commands.h"
#include "json.h"
#include "sm_use.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

Error missing_job(const Options &options, const NodeView &view) {
  for (const std::string &job : options.jobs) {
    const auto is_it = [&](const std::string &name) { return name == job || name.rfind(job + "-", 0) == 0; };
    if (std::any_of(view.regions.begin(), view.regions.end(), [&](const auto &region) { return is_it(region.job); }) ||
        std::any_of(view.troubles.begin(), view.troubles.end(), [&](const auto &known) { return is_it(known.job); })) {
      continue;
    }
    return make_error(Fault::not_found, "job %s has no region on this node", job.c_str());
  }
  return {};
}

// Nobody waits for what is not shown.
bool shows_sm_use(const Options &options, const std::vector<const Column *> &columns) {
  return options.json || std::any_of(columns.begin(), columns.end(),
                                     [](const Column *column) { return std::string_view(column->title) == kSmUsed; });
}

int list_once(const Options &options, const std::vector<const Column *> &columns, const std::string &before,
              SmMeter *meter) {
  NodeView view = look(options, region::Detail::tokens, options.ask_nvml ? Ranks::keep : Ranks::drop);
  if (shows_sm_use(options, columns)) meter->add_to(&view);
  if (options.ask_nvml) add_sm_use(options, &view);
  const Table::Style style = {options.header, options.parsable, wants_color(options.color), ""};
  const std::string text = options.json ? list_json(view) : make_table(view, columns, {options.bytes}).text(style);
  if (!print(before + text)) return kRefused;
  const int status = complain_about(view);
  if (const Error error = missing_job(options, view)) return complain(error);
  return status;
}

std::string watch_heading(const Options &options) {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  char when[32] = "";
  if (localtime_r(&now, &parts) != nullptr) std::strftime(when, sizeof when, "%T", &parts);
  char text[128];
  std::snprintf(text, sizeof text, "every %gs: vgpuctl list   %s\n\n", options.every_s, when);
  // To the top left and clear, on a terminal; elsewhere one table behind the other.
  return std::string(isatty(STDOUT_FILENO) != 0 ? "\033[H\033[2J" : "") + (options.header ? text : "");
}

void pause_for(double seconds) {
  const timespec pause = {static_cast<std::time_t>(seconds),
                          static_cast<long>((seconds - std::floor(seconds)) * 1'000'000'000)};
  nanosleep(&pause, nullptr);
}

}  // namespace

int list(const Options &options) {
  std::vector<const Column *> columns;
  if (const Error error = choose_columns(options.columns, &columns)) return complain(error);
  SmMeter meter;
  if (options.every_s == 0) return list_once(options, columns, "", &meter);
  for (;;) {
    // A job that ends is what one watches for.
    const int status = list_once(options, columns, options.json ? "" : watch_heading(options), &meter);
    if (status == kRefused) return status;
    pause_for(options.every_s);
  }
}

}  // namespace vgpu::ctl
