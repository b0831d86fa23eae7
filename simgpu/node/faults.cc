#include "simgpu/node/faults.h"

#include <charconv>
#include <cstring>
#include <sstream>

namespace simgpu {
namespace {

template <typename Number>
bool parse_rule_number(const std::string &text, Number *number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// NAME, NAME@N or NAME@N+
bool parse_target(const std::string &text, FaultRule *rule) {
  size_t at = text.find('@');
  rule->function = text.substr(0, at);
  if (rule->function.empty()) return false;
  if (at == std::string::npos) return true;
  std::string count = text.substr(at + 1);
  bool onwards = !count.empty() && count.back() == '+';
  if (onwards) count.pop_back();
  if (!parse_rule_number(count, &rule->first) || rule->first == 0) return false;
  rule->last = onwards ? UINT64_MAX : rule->first;
  return true;
}

bool parse_action(const std::string &verb, const std::string &value, FaultRule *rule) {
  using Action = FaultRule::Action;
  if (verb == "kill") {
    rule->action = value == "after" ? Action::kKillAfter : Action::kKillBefore;
    return value == "before" || value == "after";
  }
  rule->action = verb == "delay" ? Action::kDelay : Action::kFail;
  if (verb != "delay" && verb != "fail") return false;
  return parse_rule_number(value, &rule->number) && (verb == "delay" || rule->number != 0);
}

}  // namespace

bool FaultRule::is_about(const char *name) const {
  if (function.back() == '*') return strncmp(name, function.c_str(), function.size() - 1) == 0;
  return function == name;
}

void parse_fault_rules(const std::string &text, std::deque<FaultRule> *rules, std::string *error) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream parts(line.substr(0, line.find('#')));
    for (std::string part; std::getline(parts, part, ';');) {
      std::istringstream words(part);
      std::string target, verb, value, more;
      if (!(words >> target)) continue;
      words >> verb >> value;
      FaultRule &rule = rules->emplace_back();
      if (!(words >> more) && parse_target(target, &rule) && parse_action(verb, value, &rule)) continue;
      rules->pop_back();
      *error = part + ": not FUNCTION[@N[+]] and fail CODE, delay MILLISECONDS, kill before or kill after";
    }
  }
}

}  // namespace simgpu
