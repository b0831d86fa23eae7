#include "work.h"

#include <cuda.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <random>

#include "../clock.h"
#include "../failure.h"
#include "../pairs.h"

namespace bench {

namespace {

constexpr unsigned kStreams = 4;
constexpr unsigned kGraphNodes = 4;
constexpr std::uint64_t kBurst = 20 * kMillisecond;  // of work, and then of rest

void must(CUresult result, const char *what) {
  if (result != CUDA_SUCCESS) throw Failure("%s: error %d", what, static_cast<int>(result));
}

struct Kernel {
  const char *name;  // says how long it takes
  std::uint64_t ns;
};
const Kernel kKernels[] = {{"20us", 20'000}, {"200us", 200'000}, {"2ms", 2'000'000}, {"20ms", 20'000'000}};

class Kernels {
 public:
  CUfunction find(const std::string &duration) {
    CUfunction &function = functions_[duration];
    if (function != nullptr) return function;
    const std::string name = "kernel_" + duration;
    const std::string ptx =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " + name + "()\n{\n  ret;\n}\n";
    CUmodule module;
    must(cuModuleLoadData(&module, ptx.c_str()), "cuModuleLoadData");
    must(cuModuleGetFunction(&function, module, name.c_str()), "cuModuleGetFunction");
    return function;
  }

 private:
  std::map<std::string, CUfunction> functions_;
};

void launch(CUfunction function, CUstream stream) {
  must(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
}

// One launch of a program: a kernel, or a graph of four that take as long together.
class Launcher {
 public:
  Launcher(const std::string &kernels, const std::string &kind) : graphs_(kind == "graphs") {
    for (const Kernel &kernel : kKernels) {
      if (kernels != "mix" && kernels != kernel.name) continue;
      chosen_.push_back(kernel);
      if (graphs_) execs_.push_back(graph_of(kernel));
    }
    if (chosen_.empty()) throw Failure("no such kernels: %s", kernels.c_str());
    streams_.resize(kind == "streams" ? kStreams : 1);
    for (CUstream &stream : streams_) must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  // How long it takes on the device.
  std::uint64_t next() {
    const std::size_t index = random_() % chosen_.size();
    const CUstream stream = streams_[++turn_ % streams_.size()];
    if (graphs_) {
      must(cuGraphLaunch(execs_[index], stream), "cuGraphLaunch");
    } else {
      launch(kernels_.find(chosen_[index].name), stream);
    }
    return chosen_[index].ns;
  }

 private:
  CUgraphExec graph_of(const Kernel &kernel) {
    const std::string part = std::to_string(kernel.ns / kGraphNodes / 1000) + "us";
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    for (unsigned i = 0; i < kGraphNodes; ++i) launch(kernels_.find(part), stream);
    must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
    return exec;
  }

  Kernels kernels_;
  bool graphs_;
  std::vector<Kernel> chosen_;
  std::vector<CUgraphExec> execs_;
  std::vector<CUstream> streams_;
  std::size_t turn_ = 0;
  std::mt19937_64 random_{static_cast<std::uint64_t>(getpid())};
};

void make_context(int ordinal) {
  CUcontext context;
  must(cuInit(0), "cuInit");
  must(cuCtxCreate_v2(&context, 0, ordinal), "cuCtxCreate");
}

void run_program(const std::string &kernels, const std::string &kind, int ordinal, std::uint64_t until) {
  make_context(ordinal);
  Launcher launcher(kernels, kind);
  while (now_ns() < until) {
    if (kind != "bursty") {
      launcher.next();
      continue;
    }
    for (std::uint64_t launched = 0; launched < kBurst;) launched += launcher.next();
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    sleep_ns(kBurst);
  }
}

// What a launch takes of the thread when the device has time and the budget is not used up.
void measure_launches() {
  make_context(0);
  Kernels kernels;
  CUfunction function = kernels.find("0us");
  for (unsigned i = 0; i < 100; ++i) {
    launch(function, nullptr);
    must(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  std::printf("%.17g\n", ns_per_call([&] { launch(function, nullptr); }, 150 * kMillisecond));
}

// The CPU time that a rank needs which mostly waits for its turn, in percent of a core.
void measure_cpu(std::uint64_t until) {
  make_context(0);
  Launcher launcher("200us", "busy");
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
      run_program(arguments.at(1), arguments.at(2), std::stoi(arguments.at(3)), std::stoull(arguments.at(4)));
    } else if (kind == "launches") {
      measure_launches();
    } else if (kind == "cpu") {
      measure_cpu(std::stoull(arguments.at(1)));
    } else {
      throw Failure("no such work: %s", kind.c_str());
    }
    std::fflush(stdout);
    _exit(0);  // what is still queued is dropped
  });
}

}  // namespace bench
