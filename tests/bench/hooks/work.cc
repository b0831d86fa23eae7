#include "work.h"

#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../clock.h"
#include "../failure.h"
#include "../pairs.h"

namespace bench {

namespace {

constexpr size_t kLarge = std::size_t{256} << 20;
constexpr size_t kSmall = 4096;
constexpr unsigned kManyLive = 100'000;
constexpr std::uint64_t kMeasure = 150 * kMillisecond;

void must(CUresult result, const char *what) {
  if (result != CUDA_SUCCESS) throw Failure("%s: error %d", what, static_cast<int>(result));
}

void make_context(int ordinal = 0) {
  CUcontext context;
  must(cuInit(0), "cuInit");
  must(cuCtxCreate_v2(&context, 0, ordinal), "cuCtxCreate_v2");
}

void pair(size_t bytes) {
  CUdeviceptr pointer;
  must(cuMemAlloc_v2(&pointer, bytes), "cuMemAlloc_v2");
  must(cuMemFree_v2(pointer), "cuMemFree_v2");
}

void report(double value) { std::printf("%.17g\n", value); }

void wait_until(std::uint64_t instant) {
  const std::uint64_t now = now_ns();
  if (now < instant) sleep_ns(instant - now);
}

// ---- one process ----

void pairs() {
  make_context();
  report(ns_per_call([] { pair(kPairBytes); }, kMeasure));
}

// Beside a piece that stays: the driver's block stays open.
void small_pairs() {
  make_context();
  CUdeviceptr pointer;
  must(cuMemAlloc_v2(&pointer, kSmall), "cuMemAlloc_v2");
  report(ns_per_call([] { pair(kSmall); }, kMeasure));
}

// Alone: each opens a block and closes it again.
void small_pairs_alone() {
  make_context();
  report(ns_per_call([] { pair(kSmall); }, kMeasure));
}

// Microseconds of an allocation that the limit refuses, when it has refused others before.
void refusals() {
  make_context();
  CUdeviceptr pointer;
  while (cuMemAlloc_v2(&pointer, kLarge) == CUDA_SUCCESS) {
  }
  report(ns_per_call([&] { cuMemAlloc_v2(&pointer, kLarge); }, kMeasure, 16) / 1000);
}

void pairs_among_many() {
  make_context();
  for (unsigned i = 0; i < kManyLive; ++i) {
    CUdeviceptr pointer;
    must(cuMemAlloc_v2(&pointer, 512), "cuMemAlloc_v2");
  }
  report(ns_per_call([] { pair(kPairBytes); }, kMeasure));
}

// From a pool that has what is asked for, as in the steady state of a program.
void async_pairs() {
  make_context();
  report(ns_per_call(
      [] {
        CUdeviceptr pointer;
        must(cuMemAllocAsync(&pointer, kPairBytes, nullptr), "cuMemAllocAsync");
        must(cuMemFreeAsync(pointer, nullptr), "cuMemFreeAsync");
      },
      kMeasure));
}

// The four calls that make memory appear at an address and go again.
void physical_cycles() {
  make_context();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUdeviceptr address;
  must(cuMemAddressReserve(&address, kPairBytes, 0, 0, 0), "cuMemAddressReserve");
  report(ns_per_call(
      [&] {
        CUmemGenericAllocationHandle handle;
        must(cuMemCreate(&handle, kPairBytes, &properties, 0), "cuMemCreate");
        must(cuMemMap(address, kPairBytes, 0, handle, 0), "cuMemMap");
        must(cuMemUnmap(address, kPairBytes), "cuMemUnmap");
        must(cuMemRelease(handle), "cuMemRelease");
      },
      kMeasure));
}

void queries() {
  make_context();
  size_t free = 0, total = 0;
  report(ns_per_call([&] { must(cuMemGetInfo_v2(&free, &total), "cuMemGetInfo_v2"); }, kMeasure));
}

const char kPtx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";

template <typename Launch>
void launches(Launch launch) {
  CUmodule module;
  CUfunction function;
  make_context();
  must(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  must(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction");
  report(ns_per_call([&] { must(launch(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel"); },
                     kMeasure));
}

void linked_launches() { launches(&cuLaunchKernel); }

// How many of the two ways to ask for a launch function lead anywhere but straight into the driver.
void launch_detours() {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  void *by_name = dlsym(driver, "cuLaunchKernel");
  void *by_version = nullptr;
  must(cuGetProcAddress_v2("cuLaunchKernel", &by_version, 13000, 0, nullptr), "cuGetProcAddress_v2");
  int detours = 0;
  for (void *pointer : {by_name, by_version}) {
    Dl_info info;
    if (dladdr(pointer, &info) == 0) throw Failure("nobody knows the launch function");
    detours += std::strstr(info.dli_fname, "libcuda.so") == nullptr;
  }
  report(detours);
}

// ---- several processes at once ----

// How many pairs of this size in the window.
void pairs_in_window(const Window &window, size_t bytes) {
  make_context();
  pair(bytes);
  wait_until(window.start_ns);
  std::uint64_t count = 0;
  while (now_ns() < window.end_ns) {
    for (unsigned i = 0; i < 16; ++i) pair(bytes);
    count += 16;
  }
  report(static_cast<double>(count));
}

// When the context was there, in ns after the start.
void context_at_once(const Window &window, int ordinal) {
  wait_until(window.start_ns);
  make_context(ordinal);
  report(static_cast<double>(now_ns() - window.start_ns));
}

// Always wants more. What was granted and not yet given back is counted in memory that all share, after the grant and
// before the release, so that the count can only be too low.
void greed(const Window &window, int counter_fd) {
  void *shared =
      mmap(nullptr, sizeof(std::atomic<std::int64_t>) * 2, PROT_READ | PROT_WRITE, MAP_SHARED, counter_fd, 0);
  if (shared == MAP_FAILED) throw Failure("the shared counter cannot be mapped");
  auto *held = static_cast<std::atomic<std::int64_t> *>(shared);
  auto *most = held + 1;
  wait_until(window.start_ns);
  make_context();
  constexpr unsigned kPieces = 64;
  std::vector<CUdeviceptr> mine;
  std::uint64_t random = static_cast<std::uint64_t>(getpid());
  while (now_ns() < window.end_ns) {
    CUdeviceptr pointer;
    random = random * 6364136223846793005 + 1442695040888963407;
    if (mine.size() < kPieces && cuMemAlloc_v2(&pointer, kPairBytes) == CUDA_SUCCESS) {
      const std::int64_t now = held->fetch_add(kPairBytes) + static_cast<std::int64_t>(kPairBytes);
      std::int64_t seen = most->load();
      while (now > seen && !most->compare_exchange_weak(seen, now)) {
      }
      mine.push_back(pointer);
    } else if (!mine.empty()) {
      const std::size_t index = (random >> 33) % mine.size();
      held->fetch_sub(kPairBytes);
      must(cuMemFree_v2(mine[index]), "cuMemFree_v2");
      mine[index] = mine.back();
      mine.pop_back();
    }
  }
}

}  // namespace

int work(const std::vector<std::string> &arguments) {
  return run("hooks_bench", [&] {
    const std::string &kind = arguments.at(0);
    if (arguments.size() == 2 && arguments[1] == kBesideAThread) {
      std::thread([] {
        for (;;) pause();
      }).detach();
    }
    Window window{};
    if (arguments.size() >= 3) window = {std::stoull(arguments[1]), std::stoull(arguments[2])};
    if (kind == "pairs") {
      pairs();
    } else if (kind == "small") {
      small_pairs();
    } else if (kind == "small_alone") {
      small_pairs_alone();
    } else if (kind == "refusals") {
      refusals();
    } else if (kind == "many") {
      pairs_among_many();
    } else if (kind == "async") {
      async_pairs();
    } else if (kind == "physical") {
      physical_cycles();
    } else if (kind == "queries") {
      queries();
    } else if (kind == "launches") {
      linked_launches();
    } else if (kind == "detours") {
      launch_detours();
    } else if (kind == "crowd") {
      pairs_in_window(window, kPairBytes);
    } else if (kind == "large") {
      pairs_in_window(window, kLarge);
    } else if (kind == "contexts") {
      context_at_once(window, arguments.size() > 3 ? std::stoi(arguments[3]) : 0);
    } else if (kind == "modules") {
      load_modules();
    } else if (kind == "greed") {
      greed(window, std::stoi(arguments.at(3)));
    } else {
      throw Failure("no such work: %s", kind.c_str());
    }
  });
}

}  // namespace bench
