// Runs the real protocol code under every schedule with a bounded number of preemptions and crashes.
//
// Tasks are coroutines; the step hook hands control back to the scheduler after every access to shared memory. A
// crashed task is simply never resumed, as a SIGKILLed process would be. Choices are enumerated depth first, so every
// run is reproducible and a failing schedule can be printed.
#pragma once

#include <ucontext.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "region/steps.h"

namespace vgpu::test {

using namespace region;

struct Bounds {
  unsigned preemptions;
  unsigned crashes;
};

struct Task {
  std::function<void()> body;
  std::function<void()> on_crash = nullptr;  // null: this task does not crash
};

class Explorer {
 public:
  // `make` builds a fresh world and its tasks; `check` looks at it after every step and `finish` once all tasks ended
  // or crashed. Both return an empty string or what is wrong.
  struct Scenario {
    std::function<std::vector<Task>()> make;
    std::function<std::string()> check;
    std::function<std::string()> finish;
  };

  Explorer(Scenario scenario, Bounds bounds) : scenario_(std::move(scenario)), bounds_(bounds) {}

  // Empty, or the first violation with the schedule that led to it.
  std::string explore() {
    do {
      ++schedules_;
      const std::string violation = run_once();
      if (!violation.empty()) return violation + "\n  schedule:" + trace_;
    } while (advance());
    return "";
  }
  unsigned long schedules() const { return schedules_; }

 private:
  struct Choice {
    unsigned pick;
    unsigned options;
  };
  struct Coroutine {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(64 * 1024);
    bool ended = false;
  };

  unsigned choose(unsigned options) {
    if (options == 1) return 0;
    if (depth_ == path_.size()) path_.push_back({0, options});
    return path_[depth_++].pick;
  }

  bool advance() {
    while (!path_.empty() && path_.back().pick + 1 == path_.back().options) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().pick;
    return true;
  }

  static void on_step(Step step) {
    if (running_ == nullptr) return;
    running_->last_step_ = step;
    Coroutine &coroutine = *running_->coroutines_[running_->current_];
    swapcontext(&coroutine.context, &running_->scheduler_);
  }

  static void enter() {
    Explorer *explorer = running_;
    explorer->tasks_[explorer->current_].body();
    explorer->coroutines_[explorer->current_]->ended = true;
    swapcontext(&explorer->coroutines_[explorer->current_]->context, &explorer->scheduler_);
  }

  void prepare() {
    tasks_ = scenario_.make();
    while (coroutines_.size() < tasks_.size()) coroutines_.push_back(std::make_unique<Coroutine>());
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      Coroutine &coroutine = *coroutines_[i];
      coroutine.ended = false;
      getcontext(&coroutine.context);
      coroutine.context.uc_stack.ss_sp = coroutine.stack.data();
      coroutine.context.uc_stack.ss_size = coroutine.stack.size();
      coroutine.context.uc_link = nullptr;
      makecontext(&coroutine.context, &Explorer::enter, 0);
    }
    depth_ = 0;
    trace_.clear();
  }

  std::vector<unsigned> runnable(unsigned except) const {
    std::vector<unsigned> others;
    for (unsigned i = 0; i < tasks_.size(); ++i) {
      if (i != except && !coroutines_[i]->ended) others.push_back(i);
    }
    return others;
  }

  std::string run_once() {
    prepare();
    step_hook = &Explorer::on_step;
    unsigned preemptions = 0;
    unsigned crashes = 0;
    constexpr unsigned kNobody = ~0u;
    unsigned next = choose(static_cast<unsigned>(tasks_.size()));
    while (next != kNobody) {
      current_ = next;
      running_ = this;
      swapcontext(&scheduler_, &coroutines_[current_]->context);
      running_ = nullptr;
      const bool ended = coroutines_[current_]->ended;
      trace_ += " " + std::to_string(current_) + ":" + (ended ? "end" : step_name(last_step_));
      if (std::string violation = scenario_.check(); !violation.empty()) return violation;

      const std::vector<unsigned> others = runnable(current_);
      const auto count = static_cast<unsigned>(others.size());
      if (ended) {
        next = others.empty() ? kNobody : others[choose(count)];
        continue;
      }
      const unsigned switches = preemptions < bounds_.preemptions ? count : 0;
      const bool may_crash = crashes < bounds_.crashes && tasks_[current_].on_crash != nullptr;
      const unsigned pick = choose(1 + switches + (may_crash ? 1 : 0));
      if (pick == 0) continue;
      if (pick <= switches) {
        ++preemptions;
        next = others[pick - 1];
        continue;
      }
      ++crashes;
      trace_ += "!";
      coroutines_[current_]->ended = true;
      tasks_[current_].on_crash();
      next = others.empty() ? kNobody : others[choose(count)];
    }
    step_hook = nullptr;
    return scenario_.finish();
  }

  static inline Explorer *running_ = nullptr;

  Scenario scenario_;
  Bounds bounds_;
  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<Coroutine>> coroutines_;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;
  unsigned current_ = 0;
  Step last_step_ = Step::count;
  ucontext_t scheduler_ = {};
  unsigned long schedules_ = 0;
  std::string trace_;
};

}  // namespace vgpu::test
