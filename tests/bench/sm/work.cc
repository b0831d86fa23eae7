#include "work.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "../clock.h"
#include "../pairs.h"
#include "habit_work.h"
#include "kernels.h"

namespace bench {

namespace {

constexpr unsigned kStreams = 4;
constexpr unsigned kGraphNodes = 4;
constexpr std::uint64_t kBurst = 20 * kMillisecond;  // of work, and then of rest

struct Kernel {
  const char *name;  // says how long it takes
  std::uint64_t ns;
};
const Kernel kKernels[] = {{"20us", 20'000}, {"200us", 200'000}, {"2ms", 2'000'000}, {"20ms", 20'000'000}};

// One launch of a program: a kernel, or a graph of four that take as long together.
class Launcher {
 public:
  Launcher(const std::string &kernels, const std::string &kind, unsigned blocks_per_20us)
      : graphs_(kind == "graphs"), blocks_per_20us_(blocks_per_20us) {
    for (const Kernel &kernel : kKernels) {
      if (kernels != "mix" && kernels != kernel.name) continue;
      chosen_.push_back(kernel);
      if (graphs_) execs_.push_back(graph_of(kernel));
    }
    if (chosen_.empty()) throw Failure("no such kernels: %s", kernels.c_str());
    streams_.resize(kind == "streams" ? kStreams : 1);
    for (CUstream &stream : streams_) stream = make_stream();
  }

  // How long it takes on the device.
  std::uint64_t next() {
    const std::size_t index = random_() % chosen_.size();
    const CUstream stream = streams_[++turn_ % streams_.size()];
    if (graphs_) {
      must(cuGraphLaunch(execs_[index], stream), "cuGraphLaunch");
    } else {
      launch(kernels_.find(chosen_[index].name), stream, blocks(chosen_[index].ns));
    }
    return chosen_[index].ns;
  }

 private:
  CUgraphExec graph_of(const Kernel &kernel) {
    const std::string part = std::to_string(kernel.ns / kGraphNodes / 1000) + "us";
    const CUstream stream = make_stream();
    CUgraph graph;
    CUgraphExec exec;
    must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    for (unsigned i = 0; i < kGraphNodes; ++i) launch(kernels_.find(part), stream, blocks(kernel.ns / kGraphNodes));
    must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
    return exec;
  }

  unsigned blocks(std::uint64_t ns) const {
    return std::max(1u, blocks_per_20us_ * static_cast<unsigned>(ns / 1000) / 20);
  }

  Kernels kernels_;
  bool graphs_;
  unsigned blocks_per_20us_;
  std::vector<Kernel> chosen_;
  std::vector<CUgraphExec> execs_;
  std::vector<CUstream> streams_;
  std::size_t turn_ = 0;
  std::mt19937_64 random_{static_cast<std::uint64_t>(getpid())};
};

void run_program(const std::string &kernels, const std::string &kind, unsigned blocks_per_20us, int ordinal,
                 std::uint64_t until) {
  make_context(ordinal);
  Launcher launcher(kernels, kind, blocks_per_20us);
  const bool bursty = kind == "bursty", waits = bursty || kind == "sync";
  while (now_ns() < until) {
    std::uint64_t launched = launcher.next();
    while (bursty && launched < kBurst) launched += launcher.next();
    if (waits) must(cuCtxSynchronize(), "cuCtxSynchronize");
    if (bursty) sleep_ns(kBurst);
  }
}

// What a launch takes of the thread when the device has time and the budget is not used up.
void measure_launches(const std::string &duration) {
  make_context(0);
  Kernels kernels;
  CUfunction function = kernels.find(duration);
  for (unsigned i = 0; i < 100; ++i) {
    launch(function, nullptr);
    must(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  std::printf("%.17g\n", ns_per_call([&] { launch(function, nullptr); }, 150 * kMillisecond));
}

// The CPU time that a rank needs which mostly waits for its turn, in percent of a core.
void measure_cpu(std::uint64_t until) {
  make_context(0);
  Launcher launcher("200us", "busy", 0);
  for (unsigned i = 0; i < 50; ++i) launcher.next();
  const auto used = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1e9 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e3 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const std::uint64_t from = now_ns();
  const double before = used();
  while (now_ns() < until) launcher.next();
  std::printf("%.17g\n", 100 * (used() - before) / static_cast<double>(now_ns() - from));
}

}  // namespace

int sm_work(const std::vector<std::string> &arguments) {
  return run("sm_bench", [&] {
    const std::string &kind = arguments.at(0);
    if (kind == "run") {
      run_program(arguments.at(1), arguments.at(2), static_cast<unsigned>(std::stoul(arguments.at(3))),
                  std::stoi(arguments.at(4)), std::stoull(arguments.at(5)));
    } else if (kind == "launches") {
      measure_launches(arguments.at(1));
    } else if (kind == "cpu") {
      measure_cpu(std::stoull(arguments.at(1)));
    } else if (!habit_work(arguments)) {
      throw Failure("no such work: %s", kind.c_str());
    }
    std::fflush(stdout);
    _exit(0);  // what is still queued is dropped
  });
}

}  // namespace bench
