// What the ranks of hooks_bench do, each in a process of its own that was started with or without libvgpu.
#pragma once

#include <string>
#include <vector>

namespace bench {

// Runs one kind of work and prints its result: a number, or nothing. `arguments` starts with the kind's name.
int work(const std::vector<std::string> &arguments);

// As a second argument: there is a second thread, which sleeps. Locks are cheaper without one, but real drivers start some.
inline constexpr char kBesideAThread[] = "beside_a_thread";

// Prints how many microseconds each of 200 loads takes.
void load_modules();

// How work in several processes keeps in step: all start at an instant of CLOCK_MONOTONIC and stop at another.
struct Window {
  unsigned long long start_ns;
  unsigned long long end_ns;
};

}  // namespace bench
