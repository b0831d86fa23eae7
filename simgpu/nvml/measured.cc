#include <time.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "simgpu/nvml/utilisation.h"

namespace simgpu {
namespace {

// Lines of device, host PID and the four percentages. No file: nothing was said.
std::optional<std::vector<Utilisation>> operators_word(Session *session, DeviceState *state) {
  std::ifstream file(node_directory() + "/utilisation");
  if (!file) return std::nullopt;
  std::vector<Utilisation> out;
  const std::vector<VisibleProcess> processes = visible_processes(session, state);
  const unsigned long long now = clock_us(session);
  unsigned device, pid, sm, memory, encoder, decoder;
  while (file >> device >> pid >> sm >> memory >> encoder >> decoder) {
    if (device != state->index || sm + memory + encoder + decoder == 0) continue;
    for (const VisibleProcess &process : processes)
      if (process.host_pid == pid) out.push_back({process, sm, memory, encoder, decoder, now});
  }
  return out;
}

unsigned sum_of(const std::vector<Utilisation> &rows, unsigned Utilisation::*part) {
  unsigned sum = 0;
  for (const Utilisation &row : rows) sum += row.*part;
  return std::min(sum, 100u);
}

// The windows of a device that have ended `lag_ns` ago or earlier, numbered from 1, and when they did.
class Windows {
 public:
  Windows(Session *session, DeviceState *state, uint64_t lag_ns) : epoch_ns_(state->schedule.epoch_ns) {
    Engine &engine = *session->engines[state->index];
    engine.advance();
    read_clocks(session, engine);
    last_ = now_ns_ - epoch_ns_ > lag_ns ? (now_ns_ - epoch_ns_ - lag_ns) / kWindowNs : 0;
  }
  uint64_t last() const { return last_; }
  uint64_t first() const { return last_ > kWindows - 2 ? last_ - (kWindows - 2) : 1; }
  unsigned long long time_us(uint64_t window) const {
    return now_us_ - (now_ns_ - epoch_ns_ - window * kWindowNs) / 1000;
  }
  static unsigned percent(const std::atomic<uint64_t> *words, uint64_t window) {
    uint64_t word = words[window % kWindows].load(std::memory_order_acquire);
    return word >> 32 == window ? static_cast<unsigned>(((word & 0xffffffff) * 100 + kWindowNs / 2) / kWindowNs) : 0;
  }

 private:
  // The devices' clock and that of timestamps, at the same instant: who is interrupted between the two, as on a busy
  // machine, would else be told that windows ended earlier or later than they did.
  void read_clocks(Session *session, Engine &engine) {
    uint64_t closest = ~uint64_t{0};
    for (int tries = 0; tries < 10 && closest > 20000; tries++) {
      const uint64_t before = engine.now_ns();
      const unsigned long long us = clock_us(session);
      const uint64_t apart = engine.now_ns() - before;
      if (apart >= closest) continue;
      closest = apart;
      now_ns_ = before + apart / 2;
      now_us_ = us;
    }
  }

  uint64_t epoch_ns_, now_ns_, last_;
  unsigned long long now_us_;
};

}  // namespace

std::vector<Utilisation> utilisation_of(Session *session, DeviceState *state, unsigned long long last_seen_us) {
  if (auto said = operators_word(session, state)) {
    if (last_seen_us >= clock_us(session)) said->clear();
    return *said;
  }
  std::vector<Utilisation> out;
  const Windows windows(session, state, state->facts.utilisation_lag_ns);
  for (const VisibleProcess &process : visible_processes(session, state))
    for (uint64_t window = windows.last(); window >= windows.first(); window--) {
      if (windows.time_us(window) <= last_seen_us) break;
      unsigned sm = Windows::percent(state->schedule.queues[process.slot].windows, window);
      if (sm == 0) continue;
      out.push_back({process, sm, 0, 0, 0, windows.time_us(window)});
      break;
    }
  return out;
}

std::vector<Sample> samples_of(Session *session, DeviceState *state, unsigned Utilisation::*part,
                               unsigned long long last_seen_us) {
  std::vector<Sample> out;
  if (auto said = operators_word(session, state)) {
    const unsigned long long now = clock_us(session);
    if (last_seen_us < now) out.push_back({sum_of(*said, part), now});
    return out;
  }
  const Windows windows(session, state, state->facts.utilisation_lag_ns);
  for (uint64_t window = windows.first(); window <= windows.last(); window++) {
    if (windows.time_us(window) <= last_seen_us) continue;
    unsigned sm = Windows::percent(state->schedule.windows, window);
    out.push_back({part == &Utilisation::sm ? sm : 0, windows.time_us(window)});
  }
  return out;
}

unsigned percent_of(Session *session, DeviceState *state, unsigned Utilisation::*part) {
  if (auto said = operators_word(session, state)) return sum_of(*said, part);
  if (part != &Utilisation::sm) return 0;
  const Windows windows(session, state, 0);
  return windows.last() != 0 ? Windows::percent(state->schedule.windows, windows.last()) : 0;
}

unsigned long long wall_clock_us() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1000000u + static_cast<unsigned long long>(now.tv_nsec) / 1000u;
}

unsigned long long clock_us(Session *session) {
  const ClockPage *clock = session->link.clock();
  return clock->mode == ClockMode::kReal ? wall_clock_us() : clock->now_ns() / 1000;
}

}  // namespace simgpu
