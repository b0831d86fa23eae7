// What `vgpuctl check` finds: a line for each, and the status that follows from all of them.
#pragma once

#include <string>

#include "base/error.h"
#include "options.h"
#include "status.h"
#include "table.h"

namespace vgpu::ctl {

class Findings {
 public:
  void ok(const std::string &what) { rows_.add_row({{"ok", kGreen}, {what}}); }
  void warn(const std::string &what) { rows_.add_row({{"warn", kYellow}, {what}}); }
  void fail(const std::string &what) {
    rows_.add_row({{"fail", kRed}, {what}});
    status_ = kRefused;
  }
  void warn(const Error &error) { warn(std::string(error.text)); }
  void fail(const Error &error) { fail(std::string(error.text)); }
  void stale(const std::string &what) {
    warn(what);
    stale_ = true;
  }
  int show(bool color) {
    if (!print(rows_.text({false, false, color, ""}))) return kRefused;
    return status_ != kOk ? status_ : stale_ ? kStale : kOk;
  }

  Findings() {
    rows_.add_column("", Table::Align::left);
    rows_.add_column("", Table::Align::left);
  }

 private:
  Table rows_;
  int status_ = kOk;
  bool stale_ = false;
};

// What contexts take; measures it if that was asked for.
void check_contexts(const Options &options, Findings *findings);

// Library, plugin and plugstack.conf.
void check_install(const Options &options, Findings *findings);

}  // namespace vgpu::ctl
