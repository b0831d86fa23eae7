#include "simgpu/node/gate.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <thread>

#include "simgpu/node/faults.h"
#include "simgpu/node/link.h"

namespace simgpu {
namespace {

using Rules = std::deque<FaultRule>;

struct State {
  std::mutex mutex;
  bool started = false;
  uint32_t seen = 0;  // the node's word when the file was read
  std::string file_text;
  std::shared_ptr<Rules> of_environment = std::make_shared<Rules>();
  std::shared_ptr<Rules> of_file = std::make_shared<Rules>();
};

// Never deleted: clients call the driver while they exit.
State &state() {
  static State *state = [] {
    pthread_atfork(nullptr, nullptr, [] { new (&simgpu::state().mutex) std::mutex; });
    return new State;
  }();
  return *state;
}

// Rules about the other library's functions are its business; those about none are a mistake of whoever wrote them.
std::shared_ptr<Rules> read_rules(const std::string &text, const char *where) {
  auto rules = std::make_shared<Rules>();
  std::string error;
  parse_fault_rules(text, rules.get(), &error);
  for (const FaultRule &rule : *rules) {
    bool ours = rule.function.compare(0, 2, kGateNames[0], 2) == 0;
    bool known = std::any_of(kGateNames, kGateNames + kGates, [&](const char *name) { return rule.is_about(name); });
    if (ours && !known) error = rule.function + ": no such function, or one that is not simulated";
  }
  if (!error.empty()) fprintf(stderr, "simgpu: %s: %s\n", where, error.c_str());
  return rules;
}

// Calls are counted anew only when the file says something new.
void read_file(State &state) {
  std::ifstream file(node_directory() + "/faults");
  std::ostringstream text;
  text << file.rdbuf();
  if (text.str() == state.file_text) return;
  state.file_text = text.str();
  state.of_file = read_rules(state.file_text, "faults");
}

// Brings the rules up to date.
void refresh(State &state) {
  const std::atomic<uint32_t> *word = node_fault_word();
  uint32_t now = word != nullptr ? word->load(std::memory_order_acquire) : 0;
  if (!state.started) {
    const char *text = getenv("SIMGPU_FAULTS");
    if (text != nullptr) state.of_environment = read_rules(text, "SIMGPU_FAULTS");
  }
  if (!state.started || now != state.seen) read_file(state);
  state.started = true;
  state.seen = now;
  if (word != nullptr && state.of_environment->empty() && !needs_every_call() && counted_slot() == nullptr)
    g_fault_word.store(word, std::memory_order_relaxed);
}

void apply(FaultRule &rule, Fault *fault) {
  switch (rule.action) {
    case FaultRule::Action::kFail:
      if (fault->result == 0) fault->result = static_cast<int>(rule.number);
      break;
    case FaultRule::Action::kDelay:
      std::this_thread::sleep_for(std::chrono::milliseconds(rule.number));
      break;
    case FaultRule::Action::kKillBefore:
      kill_this_process();
    case FaultRule::Action::kKillAfter:
      fault->kill_after = true;
      break;
  }
}

}  // namespace

void kill_this_process() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

Fault meet_faults(unsigned function, int device) {
  std::shared_ptr<Rules> rules[2];
  {
    std::lock_guard<std::mutex> guard(state().mutex);
    refresh(state());
    rules[0] = state().of_environment;
    rules[1] = state().of_file;
  }
  Fault fault;
  for (const auto &some : rules)
    for (FaultRule &rule : *some)
      if (rule.is_about(kGateNames[function]) && rule.hits()) apply(rule, &fault);
  if (fault.result == 0) fault.result = lost_result(function, device);
  return fault;
}

}  // namespace simgpu
