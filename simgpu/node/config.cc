#include "simgpu/node/config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

namespace simgpu {
namespace {

std::string trim(const std::string &text) {
  size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool parse_number(const std::string &text, uint64_t *value) {
  char *end = nullptr;
  *value = strtoull(text.c_str(), &end, 0);
  return !text.empty() && *end == '\0';
}

bool parse_uuid(const std::string &text, uint8_t uuid[16]) {
  std::string digits;
  for (char c : text.rfind("GPU-", 0) == 0 ? text.substr(4) : text)
    if (c != '-') digits += c;
  if (digits.size() != 32 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return false;
  for (int i = 0; i < 16; i++) uuid[i] = static_cast<uint8_t>(strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
  return true;
}

template <size_t n>
bool copy_text(const std::string &text, char (&out)[n]) {
  if (text.size() >= n) return false;
  snprintf(out, n, "%s", text.c_str());
  return true;
}

struct Draft {
  DeviceFacts facts{};
  bool broken = false;
  bool has_uuid = false;
  bool has_pci = false;
};

Draft default_device() {
  Draft draft;
  DeviceFacts &facts = draft.facts;
  copy_text("Simulated GPU", facts.name);
  facts.sm_count = 80;
  facts.compute_major = 8;
  facts.clock_mhz = 1400;
  facts.memory_clock_mhz = 1200;
  facts.bus_width = 256;
  facts.memory_bytes = 16ull << 30;
  facts.reserved_bytes = 256ull << 20;
  facts.context_bytes = 300ull << 20;
  facts.module_bytes = 2ull << 20;
  facts.pool_chunk_bytes = 32ull << 20;
  facts.visibility_ns = 80ull * 1000 * 1000;
  facts.queue_depth = kQueueEntries;
  facts.slice_ns = 2 * 1000 * 1000;
  facts.utilisation_lag_ns = kWindowNs;
  facts.block_bytes = kBlockBytes;
  set_profile("ideal", &facts);
  return draft;
}

// "20us", "3us/wave", or both with a '+' between them.
bool parse_kernel_time(const std::string &text, KernelTime *time) {
  *time = {};
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, '+')) {
    part = trim(part);
    size_t slash = part.find('/');
    bool wave = slash != std::string::npos;
    if (wave && trim(part.substr(slash + 1)) != "wave") return false;
    if (!parse_duration(trim(part.substr(0, slash)), wave ? &time->wave_ns : &time->base_ns)) return false;
  }
  return true;
}

// Keys of the model of time.
const char *apply_time(const std::string &key, const std::string &value, DeviceFacts *facts, NodeConfig *config) {
  static const char kNotDuration[] = "not a duration (like 200us)";
  static const char kNotTime[] = "not a kernel's time (like 20us + 3us/wave)";
  if (key == "kernel_time") return parse_kernel_time(value, &facts->kernel_time) ? nullptr : kNotTime;
  if (key.rfind("kernel_time ", 0) == 0) {
    if (facts->kernel_rule_count == kMaxKernelRules) return "too many kernels are named";
    KernelRule &rule = facts->kernel_rules[facts->kernel_rule_count];
    if (!copy_text(trim(key.substr(12)), rule.name)) return "too long";
    if (!parse_kernel_time(value, &rule.time)) return kNotTime;
    facts->kernel_rule_count++;
    return nullptr;
  }
  if (key == "slice") return parse_duration(value, &facts->slice_ns) && facts->slice_ns > 0 ? nullptr : kNotDuration;
  if (key == "utilisation_lag")
    return parse_duration(value, &facts->utilisation_lag_ns) && facts->utilisation_lag_ns <= 1000000000 ? nullptr
                                                                                                        : kNotDuration;
  if (key == "queue_depth") {
    uint64_t number;
    if (!parse_number(value, &number) || number == 0 || number > kQueueEntries) return "not a number from 1 to 1024";
    facts->queue_depth = static_cast<uint32_t>(number);
    return nullptr;
  }
  if (key == "clock") {
    static const char *const names[] = {"real", "manual", "auto"};
    for (uint32_t i = 0; i < 3; i++)
      if (value == names[i]) {
        config->clock = static_cast<ClockMode>(i);
        return nullptr;
      }
    return "not one of real, manual, auto";
  }
  return apply_whim(key, value, facts, config);
}

// Returns null when the line was understood, else why not.
const char *apply(const std::string &key, const std::string &value, Draft *draft, NodeConfig *config) {
  DeviceFacts &facts = draft->facts;
  uint64_t number = 0;
  struct Sized {
    const char *key;
    uint64_t *field;
  } sized[] = {{"memory", &facts.memory_bytes},
               {"reserved", &facts.reserved_bytes},
               {"context", &facts.context_bytes},
               {"module", &facts.module_bytes},
               {"pool_chunk", &facts.pool_chunk_bytes}};
  for (const Sized &row : sized)
    if (key == row.key) return parse_bytes(value, row.field) ? nullptr : "not a size (like 16GiB)";
  struct Counted {
    const char *key;
    uint32_t *field;
  } counted[] = {{"sms", &facts.sm_count},
                 {"clock_mhz", &facts.clock_mhz},
                 {"memory_clock_mhz", &facts.memory_clock_mhz},
                 {"bus_width", &facts.bus_width}};
  for (const Counted &row : counted)
    if (key == row.key) {
      if (!parse_number(value, &number) || number == 0 || number > 1u << 30) return "not a positive number";
      *row.field = static_cast<uint32_t>(number);
      return nullptr;
    }
  if (key == "name") return copy_text(value, facts.name) ? nullptr : "too long";
  if (key == "serial") return copy_text(value, facts.serial) ? nullptr : "too long";
  if (key == "uuid") {
    draft->has_uuid = true;
    return parse_uuid(value, facts.uuid) ? nullptr : "not a UUID";
  }
  if (key == "pci") {
    char rest = 0;
    unsigned function = 0;
    draft->has_pci = true;
    int n =
        sscanf(value.c_str(), "%x:%x:%x.%x%c", &facts.pci_domain, &facts.pci_bus, &facts.pci_device, &function, &rest);
    return n >= 3 && n <= 4 && facts.pci_bus < 256 && facts.pci_device < 32 ? nullptr
                                                                            : "not a PCI bus id (0000:01:00.0)";
  }
  if (key == "compute") {
    char rest = 0;
    int n = sscanf(value.c_str(), "%u.%u%c", &facts.compute_major, &facts.compute_minor, &rest);
    return n == 2 ? nullptr : "not a compute capability (8.0)";
  }
  if (key == "visibility_ms") {
    if (!parse_number(value, &number)) return "not a number";
    facts.visibility_ns = number * 1000 * 1000;
    return nullptr;
  }
  if (key == "broken") {
    draft->broken = value == "1" || value == "yes";
    return nullptr;
  }
  if (key == "count_calls") {
    config->count_calls = value == "yes";
    return value == "yes" || value == "no" ? nullptr : "not one of no, yes";
  }
  if (key == "idle_ms") return parse_number(value, &config->idle_ms) ? nullptr : "not a number";
  return apply_time(key, value, &facts, config);
}

// Fills in what makes each device distinct when the description does not say.
void finish(std::vector<Draft> *drafts) {
  for (size_t i = 0; i < drafts->size(); i++) {
    DeviceFacts &facts = (*drafts)[i].facts;
    facts.minor = static_cast<uint32_t>(i);
    if (!(*drafts)[i].has_uuid) {
      static const uint8_t base[16] = {0x51, 0x6d, 0x67, 0x70, 0x75, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0};
      memcpy(facts.uuid, base, 16);
      facts.uuid[15] = static_cast<uint8_t>(i + 1);
    }
    if (!(*drafts)[i].has_pci) facts.pci_bus = static_cast<uint32_t>(0x10 + i);
    if (facts.serial[0] == '\0') snprintf(facts.serial, sizeof facts.serial, "%013zu", 1320000000000 + i);
  }
}

bool sane(const Draft &draft) {
  const DeviceFacts &facts = draft.facts;
  uint64_t blocks = facts.memory_bytes / kBlockBytes;
  return facts.memory_bytes > facts.reserved_bytes && blocks < (1u << 20) && facts.pool_chunk_bytes > 0;
}

}  // namespace

bool parse_duration(const std::string &text, uint64_t *ns) {
  char *end = nullptr;
  double value = strtod(text.c_str(), &end);
  if (end == text.c_str() || value < 0) return false;
  std::string unit = trim(end);
  static const struct {
    const char *name;
    double ns;
  } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
  for (const auto &row : units)
    if (unit == row.name) {
      constexpr double kTwoWeeks = 14 * 24 * 3600e9;  // longer than any node lives
      *ns = static_cast<uint64_t>(std::min(value * row.ns, kTwoWeeks) + 0.5);
      return value * row.ns <= kTwoWeeks;
    }
  return value == 0 && unit.empty() && (*ns = 0, true);
}

bool parse_bytes(const std::string &text, uint64_t *bytes) {
  char *end = nullptr;
  double value = strtod(text.c_str(), &end);
  if (end == text.c_str() || value < 0) return false;
  std::string unit = trim(end);
  static const char *const names[] = {"", "K", "M", "G", "T"};
  for (int i = 4; i >= 0; i--) {
    std::string name = names[i];
    if (unit == name || (i > 0 && (unit == name + "iB" || unit == name + "B"))) {
      *bytes = static_cast<uint64_t>(value * static_cast<double>(1ull << (10 * i)));
      return true;
    }
  }
  return false;
}

std::string format_uuid(const uint8_t uuid[16]) {
  std::string text = "GPU-";
  char hex[3];
  for (int i = 0; i < 16; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    snprintf(hex, sizeof hex, "%02x", uuid[i]);
    text += hex;
  }
  return text;
}

namespace {

bool parse_lines(const std::string &text, Draft *defaults, std::vector<Draft> *drafts, NodeConfig *config,
                 std::string *error) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line, '\n'); number++) {
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (line == "device") {
      if (drafts->size() == kMaxDevices) {
        *error = "line " + std::to_string(number) + ": more than " + std::to_string(kMaxDevices) + " devices";
        return false;
      }
      drafts->push_back(*defaults);
      continue;
    }
    size_t equals = line.find('=');
    const char *why = "not `key = value`";
    if (equals != std::string::npos)
      why = apply(trim(line.substr(0, equals)), trim(line.substr(equals + 1)),
                  drafts->empty() ? defaults : &drafts->back(), config);
    if (why != nullptr) {
      *error = "line " + std::to_string(number) + ": " + line + ": " + why;
      return false;
    }
  }
  return true;
}

// Semicolons stand for line ends in variables.
std::string lines_of_variable(const char *name) {
  const char *given = getenv(name);
  std::string text = given != nullptr ? given : "";
  std::replace(text.begin(), text.end(), ';', '\n');
  return text;
}

}  // namespace

bool parse_node_config(const std::string &text, NodeConfig *config, std::string *error) {
  Draft defaults = default_device();
  std::vector<Draft> drafts;
  if (!parse_lines(lines_of_variable("SIMGPU_WHIMS"), &defaults, &drafts, config, error)) {
    *error = "SIMGPU_WHIMS: " + *error;
    return false;
  }
  if (!parse_lines(text, &defaults, &drafts, config, error)) return false;
  if (drafts.empty()) drafts.assign(2, defaults);
  finish(&drafts);
  std::stable_sort(drafts.begin(), drafts.end(), [](const Draft &a, const Draft &b) {
    auto key = [](const Draft &d) {
      return uint64_t{d.facts.pci_domain} << 16 | d.facts.pci_bus << 8 | d.facts.pci_device;
    };
    return key(a) < key(b);
  });
  for (const Draft &draft : drafts) {
    if (!sane(draft)) {
      *error = std::string(draft.facts.name) + ": memory does not fit (reserved at least as large, or 2 TiB and more)";
      return false;
    }
    config->devices.push_back(draft.facts);
    config->broken.push_back(draft.broken);
  }
  return true;
}

bool load_node_config(const std::string &directory, NodeConfig *config, std::string *error) {
  const char *given = getenv("SIMGPU_CONFIG");
  std::string path = directory + "/node.conf";
  bool must_exist = false;
  if (given != nullptr && *given != '\0') {
    std::string text = given;
    if (text.find_first_of("=\n") != std::string::npos) {
      return parse_node_config(lines_of_variable("SIMGPU_CONFIG"), config, error);
    }
    path = text;
    must_exist = true;
  }
  std::ifstream file(path);
  if (!file && must_exist) {
    *error = path + ": cannot be read";
    return false;
  }
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (parse_node_config(text.str(), config, error)) return true;
  *error = path + ": " + *error;
  return false;
}

}  // namespace simgpu
