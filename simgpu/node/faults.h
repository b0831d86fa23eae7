// Faults on demand: the rules, as SIMGPU_FAULTS and the file `faults` in the node's directory state them.
//
//   FUNCTION[@N[+]] fail CODE | delay MILLISECONDS | kill before | kill after
//
// FUNCTION is an entry point's exact name, or a beginning of names and `*`. N counts the process's calls from 1: the
// N-th alone, or with `+` that and all later ones; without it all. Rules are separated by `;` or line ends; `#` starts a
// comment.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>

namespace simgpu {

struct FaultRule {
  enum class Action : uint8_t { kFail, kDelay, kKillBefore, kKillAfter };
  std::string function;
  uint64_t first = 1, last = UINT64_MAX;
  Action action = Action::kFail;
  unsigned number = 0;  // the code, or the milliseconds
  std::atomic<uint64_t> calls{0};

  bool is_about(const char *name) const;
  // Counts a call, and says whether it is one of those meant.
  bool hits() {
    uint64_t call = calls.fetch_add(1, std::memory_order_relaxed) + 1;
    return call >= first && call <= last;
  }
};

// Adds what the text says. A rule that makes no sense is left out, and described in `error`.
void parse_fault_rules(const std::string &text, std::deque<FaultRule> *rules, std::string *error);

}  // namespace simgpu
