#include "simgpu/nvml/manners.h"

#include <cstring>
#include <string>

#include "simgpu/node/gate.h"

namespace simgpu {
namespace {

constexpr NvmlManners kGoodManners{};

// What this call met, and whether it is decided anew for each.
struct CallManners {
  NvmlManners now;
  uint64_t dice = 0;  // 0: nothing is left to chance
};
thread_local constinit CallManners t_call{};

uint64_t scramble(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// A number below `range` that depends on the call and on what it is for.
unsigned roll(uint64_t purpose, unsigned range) {
  return static_cast<unsigned>(scramble(t_call.dice ^ scramble(purpose)) % range);
}

enum Purpose : uint64_t { kPids = 1, kBytes, kUsed, kRefusal, kTime, kDuration, kProcess = 1000 };

// The calls of a process are numbered, so that a program that makes the same calls meets the same answers.
void throw_dice(Session *session, NvmlManners *now) {
  static std::atomic<uint64_t> calls{0};
  const NvmlManners &said = session->node()->nvml;
  t_call.dice = scramble(said.seed + (uint64_t{session->link.slot()} << 32) + calls.fetch_add(1)) | 1;
  now->pids = roll(kPids, 2) == 0 ? NvmlPids::kHost : NvmlPids::kNamespace;
  const unsigned bytes = roll(kBytes, 8);
  now->bytes = bytes == 0 ? NvmlBytes::kZero : bytes == 1 ? NvmlBytes::kUnavailable : NvmlBytes::kExact;
  now->used_has_reserved = roll(kUsed, 2);
}

bool is_named(const char *list, const char *name) {
  const std::string names = list;
  for (size_t start = 0; start < names.size();) {
    size_t end = std::min(names.find(',', start), names.size());
    std::string item = names.substr(start, end - start);
    const bool beginning = !item.empty() && item.back() == '*';
    if (beginning) item.pop_back();
    if (!item.empty() && (beginning ? strncmp(name, item.c_str(), item.size()) == 0 : item == name)) return true;
    start = end + 1;
  }
  return false;
}

bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

// What a driver answers without asking its device.
bool is_by_heart(const char *name) {
  for (const char *known :
       {"nvmlDeviceGetHandle", "nvmlDeviceGetCount", "nvmlDeviceGetIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
        "nvmlDeviceGetSerial", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetPciInfo"})
    if (begins(name, known)) return true;
  return !begins(name, "nvmlDevice");
}

void take_time(const NvmlManners &said) {
  uint64_t ns = said.shortest_ns;
  if (said.longest_ns > said.shortest_ns) {
    static std::atomic<uint64_t> calls{0};
    const uint64_t dice = t_call.dice != 0 ? t_call.dice : scramble(calls.fetch_add(1));
    ns += scramble(dice ^ kDuration) % (said.longest_ns - said.shortest_ns + 1);
  }
  if (ns == 0) return;
  timespec left{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  while (nanosleep(&left, &left) != 0) continue;
}

}  // namespace

const NvmlManners &manners() {
  Session *session = Session::current();
  if (session == nullptr) return kGoodManners;
  return t_call.dice != 0 ? t_call.now : session->node()->nvml;
}

bool shows_process(unsigned slot) { return t_call.dice == 0 || roll(kProcess + slot, 8) != 0; }

// The gates lead here before each call as long as needs_every_call() says so. Of lost devices the calls know themselves;
// see NVML_DEVICE.
int lost_result(unsigned function, int) {
  Session *session = Session::current();
  t_call.dice = 0;
  if (session == nullptr) return NVML_SUCCESS;
  const NvmlManners &said = session->node()->nvml;
  const char *name = kGateNames[function];
  if (said.seed != 0) {
    t_call.now = said;
    throw_dice(session, &t_call.now);
  }
  if (is_by_heart(name)) return NVML_SUCCESS;
  if (said.seed == 0 || roll(kTime, 4) == 0) take_time(said);
  if (is_named(said.unsupported, name)) return NVML_ERROR_NOT_SUPPORTED;
  return said.seed != 0 && roll(kRefusal, 16) == 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

bool needs_every_call() {
  Session *session = Session::kept();
  if (session == nullptr) return false;
  const NvmlManners &said = session->node()->nvml;
  return said.seed != 0 || said.longest_ns != 0 || said.unsupported[0] != '\0';
}

}  // namespace simgpu
