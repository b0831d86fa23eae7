// What a job's books say beside what the device holds, after each step of a program in that job. Looked at from outside of
// the job, where nobody changes what NVML says.
#include <cstdio>
#include <sstream>

#include "child.h"
#include "region/region.h"
#include "tables.h"

namespace tables {

namespace {

struct Step {
  const char *title;
  const char *order;
  const char *expected = "CUDA_SUCCESS";
  bool is_elsewhere = false;  // charged, but not on the device
  bool launches =
      false;  // what that takes no call names: it is seen within a second while the program waits for the device
};

const Step kSteps[] = {
    {"cuInit", "init"},
    {"primary context", "context"},
    {"module loaded", "module"},
    {"first launch", "launch", "CUDA_SUCCESS", false, true},
    {"malloc 512 B", "malloc 512"},
    {"malloc 1 MiB", "malloc 1048576"},
    {"malloc 2 MiB + 1", "malloc 2097153"},
    {"malloc 8 MiB", "malloc 8388608"},
    {"64 x malloc 3 MiB", "malloc 3145728 64"},
    {"1000 x malloc 4 KiB", "malloc 4096 1000"},
    {"all freed", "free"},
    {"stream", "stream"},
    {"async 1 MiB", "async 1048576"},
    {"async 100 MiB", "async 104857600"},
    {"async freed", "async-free"},
    {"pool trimmed", "trim"},
    {"VMM 64 MiB mapped", "vmm 67108864"},
    {"VMM released", "vmm-free"},
    {"managed 32 MiB", "managed 33554432", "CUDA_SUCCESS", true},
    {"freed", "free"},
    {"stack 2 KiB, launch", "stack 2048", "CUDA_SUCCESS", false, true},
    {"launch, local memory", "deep", "CUDA_SUCCESS", false, true},
    {"printf buffer 64 MiB", "printf 67108864", "CUDA_SUCCESS", false, true},
    {"malloc 1 TiB", "malloc 1099511627776", "CUDA_ERROR_OUT_OF_MEMORY"},
    {"module unloaded", "unload"},
    {"device reset", "reset"},
    {"context again", "context"},
};

constexpr unsigned kSettle_ms = 400;  // NVML shows memory late

struct Look {
  bool books_known = false, listed = false;
  std::uint64_t books = 0, process = 0;
  std::int64_t device = 0;  // more than before the job started

  // What the program holds, as far as NVML says it.
  std::int64_t held() const { return listed ? static_cast<std::int64_t>(process) : device; }
};

class Watcher {
 public:
  Watcher(unsigned pid, std::string region, std::uint64_t before)
      : pid_(pid), region_(std::move(region)), before_(before) {}

  Look look() const {
    sleep_ms(kSettle_ms);
    Look seen;
    std::vector<ListedProcess> processes;
    std::uint64_t used = before_;
    listed_processes(&processes);
    const ListedProcess *own = find_process(processes, pid_);
    seen.listed = own != nullptr && own->bytes != 0 && own->bytes != ~std::uint64_t{0};
    if (seen.listed) seen.process = own->bytes;
    device_used(&used);
    seen.device = static_cast<std::int64_t>(used - before_);
    vgpu::region::Snapshot snapshot;
    if (!vgpu::region::Snapshot::read(region_.c_str(), vgpu::region::Trust::root_or_self, vgpu::region::Detail::memory,
                                      &snapshot)) {
      seen.books_known = true;
      for (unsigned i = 0; i < snapshot.ndev(); ++i) seen.books += snapshot.device(i).memory_used;
    }
    return seen;
  }

 private:
  unsigned pid_;
  std::string region_;
  std::uint64_t before_;
};

struct Worst {
  std::uint64_t bytes = 0;
  const char *step = "";

  void see(std::int64_t more, const char *title) {
    if (more > static_cast<std::int64_t>(bytes)) *this = {static_cast<std::uint64_t>(more), title};
  }
};

}  // namespace

int books(char **command) {
  std::uint64_t before = 0;
  if (!device_used(&before)) {
    conclude("NVML does not say how much the device holds");
    return 1;
  }
  Child child(command);
  std::string answer, region;
  unsigned pid = 0;
  if (!child.greet(&pid, &region)) {
    conclude("the program did not start in a job");
    return 1;
  }
  const Watcher watcher(pid, region, before);
  Table table(20, {"step", "took us", "books MiB", "process MiB", "device MiB", "books - held", "     result"});
  Worst over, under;
  unsigned unexpected = 0, steps_over = 0, steps = 0;
  constexpr std::int64_t kMiB = 1 << 20;
  for (const Step &step : kSteps) {
    if (!child.ask(step.order, &answer)) {
      conclude(format("the program ended at the step '%s'", step.title));
      return 1;
    }
    std::string result;
    double took = 0;
    std::istringstream(answer) >> result >> took;
    if (step.launches) child.ask("wait 1000", &answer);
    const Look seen = watcher.look();
    const std::int64_t difference = static_cast<std::int64_t>(seen.books) - seen.held();
    ++steps;
    if (result != step.expected) ++unexpected;
    if (seen.books_known) {
      over.see(-difference, step.title);
      if (!step.is_elsewhere) under.see(difference, step.title);
      if (-difference > kMiB) ++steps_over;
    }
    table.add({step.title, format("%.0f", took), seen.books_known ? mib(seen.books) : "?",
               seen.listed ? mib(seen.process) : "-", mib_signed(seen.device), mib_signed(difference),
               result == step.expected ? "as expected" : result});
  }
  child.end();
  sleep_ms(kSettle_ms);
  std::uint64_t after = before;
  device_used(&after);
  table.add({"exit", "", "", "", mib_signed(static_cast<std::int64_t>(after - before)), "", ""});
  std::printf(
      "held: the process's figure where NVML has one, else the device's since the start\n"
      "managed memory is charged in full and is not on the device before it is used\n");
  std::string sentence = format("%u steps: ", steps);
  sentence += steps_over == 0 ? "the device never holds 1 MiB more than the books"
                              : format("after %u the device holds more than the books, at most %s MiB (%s)", steps_over,
                                       mib(over.bytes).c_str(), over.step);
  if (under.bytes > 0) sentence += format("; at most %s MiB less (%s)", mib(under.bytes).c_str(), under.step);
  if (unexpected > 0) sentence += format("; %u unexpected results", unexpected);
  conclude(sentence);
  return steps_over == 0 && unexpected == 0 ? 0 : 1;
}

}  // namespace tables
