#include <cstring>

#include "simgpu/cuda/launch/kernel_time.h"
#include "simgpu/node/config.h"

namespace simgpu {
namespace {

bool matches(const KernelRule &rule, const std::string &name) {
  size_t length = strlen(rule.name);
  if (length > 0 && rule.name[length - 1] == '*') return name.compare(0, length - 1, rule.name, length - 1) == 0;
  return name == rule.name;
}

// The name as it was written: that of a C++ kernel follows its length.
std::string plain_name(const std::string &name) {
  if (name.rfind("_Z", 0) != 0) return name;
  char *end = nullptr;
  unsigned long length = strtoul(name.c_str() + 2, &end, 10);
  return std::string(end).substr(0, length);
}

bool own_time(const std::string &name, uint64_t *ns) {
  size_t underscore = name.rfind('_');
  if (underscore == std::string::npos || underscore + 1 == name.size()) return false;
  std::string text = name.substr(underscore + 1);
  return text[0] >= '0' && text[0] <= '9' && text.back() == 's' && parse_duration(text, ns);
}

}  // namespace

KernelTime time_of_kernel(const DeviceFacts &facts, const std::string &name) {
  const std::string plain = plain_name(name);
  for (uint32_t i = 0; i < facts.kernel_rule_count; i++)
    if (matches(facts.kernel_rules[i], plain)) return facts.kernel_rules[i].time;
  KernelTime time{};
  return own_time(plain, &time.base_ns) ? time : facts.kernel_time;
}

}  // namespace simgpu
