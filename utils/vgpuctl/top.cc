// vgpuctl top: a live view, with a bar and a history for each job and GPU.
#include "commands.h"
#include "status.h"
#include "view.h"

#ifdef VGPU_NCURSES

#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <curses.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>

#include "columns.h"
#include "sm_use.h"

namespace vgpu::ctl {

namespace {

constexpr int kGoodColor = 1;
constexpr int kFullColor = 2;
constexpr int kStaleColor = 3;
constexpr int kBarWidth = 24;
constexpr std::size_t kHistory = 512;  // as wide as a terminal may be

class Screen {
 public:
  explicit Screen(bool color) {
    std::setlocale(LC_ALL, "");
    utf8_ = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    initscr();
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    color_ = color && has_colors();
    if (!color_) return;
    start_color();
    use_default_colors();
    init_pair(kGoodColor, COLOR_GREEN, -1);
    init_pair(kFullColor, COLOR_YELLOW, -1);
    init_pair(kStaleColor, COLOR_RED, -1);
  }
  ~Screen() { endwin(); }
  Screen(const Screen &) = delete;
  Screen &operator=(const Screen &) = delete;

  bool is_utf8() const { return utf8_; }
  chtype shade(State state) const {
    if (!color_) return A_NORMAL;
    if (state == State::stale) return COLOR_PAIR(kStaleColor);
    return COLOR_PAIR(state == State::at_limit ? kFullColor : kGoodColor);
  }

 private:
  bool utf8_ = false;
  bool color_ = false;
};

class View {
 public:
  View(const Options &options, Screen *screen) : options_(options), screen_(*screen), asks_(options.ask_nvml) {}

  void look_again() {
    view_ = look(options_, region::Detail::tokens);
    if (asks_) {
      add_sm_use(options_, &view_);
      asks_ = has_answer();  // an NVML that hangs does so once
    }
    for (const RegionView &region : view_.regions) {
      for (const DeviceView &device : region.devices) {
        std::deque<double> &line = history_[region.job + "/" + device.uuid];
        line.push_back(device.used ? std::min(device.memory_ratio(), 1.0) : 0);
        if (line.size() > kHistory) line.pop_front();
      }
    }
  }

  void draw() {
    erase();
    const std::time_t now = std::time(nullptr);
    std::tm parts = {};
    char clock[16] = "";
    if (localtime_r(&now, &parts) != nullptr) std::strftime(clock, sizeof clock, "%T", &parts);
    attron(A_BOLD);
    put(0, view_.host + "  " + clock + "  " + std::to_string(view_.regions.size()) + " jobs with GPU limits   q quits");
    attroff(A_BOLD);
    attron(A_REVERSE);
    put(1, row_text("JOBID", "USER", "GPU", "", "USED", "LIMIT", "SM", "PROCS", "REFUSED"));
    attroff(A_REVERSE);
    int line = 2;
    for (const RegionView &region : view_.regions) {
      for (const DeviceView &device : region.devices) {
        if (line + 1 >= LINES) break;
        draw_device(line, region, device);
        line += 2;
      }
    }
    for (const Trouble &trouble : view_.troubles) {
      if (line < LINES) put(line++, trouble.error.text);
    }
    for (const RegionView &region : view_.regions) {
      if (region.damage && line < LINES) put(line++, region.damage.text);
    }
    refresh();
  }

 private:
  bool has_answer() const {
    if (view_.regions.empty()) return true;
    for (const RegionView &region : view_.regions) {
      for (const DeviceView &device : region.devices) {
        if (device.sm_used) return true;
      }
    }
    return false;
  }

  static std::string row_text(const std::string &job, const std::string &user, const std::string &gpu,
                              const std::string &bar, const std::string &used, const std::string &limit,
                              const std::string &sm, const std::string &processes, const std::string &refused) {
    char text[256];
    std::snprintf(text, sizeof text, "%12.12s %-10.10s %4.4s %-*s %10.10s / %-10.10s %5.5s %6.6s %8.8s", job.c_str(),
                  user.c_str(), gpu.c_str(), kBarWidth + 2, bar.c_str(), used.c_str(), limit.c_str(), sm.c_str(),
                  processes.c_str(), refused.c_str());
    return text;
  }

  static std::string bar(const DeviceView &device) {
    if (!device.used) return "[" + std::string(kBarWidth, ' ') + "]";
    const auto full = static_cast<std::size_t>(kBarWidth * std::min(device.memory_ratio(), 1.0) + 0.5);
    return "[" + std::string(full, '|') + std::string(kBarWidth - full, ' ') + "]";
  }

  void draw_device(int line, const RegionView &region, const DeviceView &device) {
    const auto text = [](const auto &value) { return value ? std::to_string(*value) : std::string(kUnknown); };
    attron(screen_.shade(device.state));
    put(line, row_text(region.job, region.user, device.gpu, bar(device), size_text(device.used, {}),
                       size_text(device.limit, {}), percent_text(device.sm_used), text(device.processes),
                       text(device.refused)) +
                  "  " + name_of(device.state));
    draw_history(line + 1, history_[region.job + "/" + device.uuid]);
    attroff(screen_.shade(device.state));
  }

  void draw_history(int line, const std::deque<double> &values) {
    constexpr int kIndent = 13;
    const wchar_t *levels = screen_.is_utf8() ? L"▁▂▃▄▅▆▇█" : L"_..-=+*#";
    const auto room = static_cast<std::size_t>(std::max(0, COLS - kIndent));
    const std::size_t first = values.size() > room ? values.size() - room : 0;
    std::wstring text;
    for (std::size_t i = first; i < values.size(); ++i) text += levels[static_cast<int>(values[i] * 7 + 0.5)];
    mvaddnwstr(line, kIndent, text.c_str(), static_cast<int>(room));
  }

  static void put(int line, const std::string &text) { mvaddnstr(line, 0, text.c_str(), COLS); }

  const Options &options_;
  Screen &screen_;
  bool asks_;
  NodeView view_;
  std::map<std::string, std::deque<double>> history_;
};

}  // namespace

int top(const Options &options) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    std::fprintf(stderr, "vgpuctl: top needs a terminal; see vgpuctl list --watch\n");
    return kRefused;
  }
  Screen screen(options.color);
  View view(options, &screen);
  for (;;) {
    view.look_again();
    view.draw();
    timeout(static_cast<int>(options.every_s * 1000));
    // A changed size is drawn at once, with what is known already.
    int key = 0;
    while ((key = getch()) == KEY_RESIZE) view.draw();
    if (key == 'q' || key == 'Q') return kOk;
  }
}

}  // namespace vgpu::ctl

#else

#include <cstdio>

namespace vgpu::ctl {

int top(const Options &) {
  std::fprintf(stderr, "vgpuctl: built without ncurses; see vgpuctl list --watch\n");
  return kRefused;
}

}  // namespace vgpu::ctl

#endif
