// A job of truth_bench and truth_test: a region on a simulated node, and ranks that do what they are told. They answer each
// call, so it is known when none is in progress; then the device is compared with the books.
#pragma once

#include <functional>

#include "device_books.h"
#include "hooks/support.h"

namespace vgpu::truth {

using test::kMiB;
using test::Program;

// What is varied from run to run.
struct Manner {
  std::string node;            // lines of the node's description, each with a ; at its end
  bool context_known = false;  // root measured what a context takes
  long rest_ms = 300;          // how long the end of a case is watched; from 2000 on, waste is judged
};

class Job {
 public:
  Job(const test::Node &node, const std::string &name, std::uint64_t limit, const Manner &manner);

  // A rank with cuInit behind it, which the job keeps.
  Program &start();
  // So many ranks, which then do the same at the same time; looks when all have done it.
  void start_at_once(unsigned ranks, const std::function<void(Program &)> &work);
  // Allocates until it is refused, or `most` times. Answers how many it got.
  unsigned fill(Program &rank, std::uint64_t piece, unsigned most = ~0u);
  void look();
  // Watches, while only one rank does something: it waits for the device, which has nothing to do.
  void rest();
  // The end of a case.
  void end(Judge *judge);

 private:
  Reading read() const;

  const test::Node &node_;
  const Manner &manner_;
  test::TemporaryDirectory directory_;
  std::string path_;
  region::Region region_;
  std::vector<std::unique_ptr<Program>> ranks_;
  Judge judge_;
};

}  // namespace vgpu::truth
