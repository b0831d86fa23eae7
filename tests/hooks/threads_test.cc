// Eight threads of one process, all families mixed, contexts made and destroyed meanwhile; the library is linked in, so
// that a sanitizer sees all of it.
//
// The test starts itself again as the program under test: a program is told of its region before it starts.
#include <mutex>
#include <random>
#include <thread>

#include "cases.h"
#include "stress_makers.h"
#include "support.h"

namespace vgpu::test {
namespace {

constexpr char kRole[] = "--threads";
constexpr unsigned kThreads = 8;
constexpr std::uint64_t kLimit = 640 * kMiB;

// What is left at the end, on device 0, for the test to compare with the books.
constexpr std::uint64_t kLeft = 6 * kMiB;
constexpr std::uint64_t kBare = 64 * kMiB;  // a context

[[noreturn]] void fail(const char *what, int result) {
  std::fprintf(stderr, "%s: %d\n", what, result);
  std::_Exit(3);
}

void must(int result, const char *what) {
  if (result != CUDA_SUCCESS) fail(what, result);
}

// Nothing but the limit may refuse it.
bool had(int result, const char *what) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
  must(result, what);
  return true;
}

// Released by one or the other.
struct Held {
  const char *release;
  const ProcessMaker *process_maker;
  std::uint64_t handle;

  void drop() const {
    if (process_maker != nullptr) {
      must(process_maker->release(handle), process_maker->name);
    } else {
      must(find_releaser(release)->release(handle), release);
    }
  }
};

// Allocations in the primary context, which every thread may free.
class Shared {
 public:
  void put(const Held &held) {
    std::lock_guard lock(mutex_);
    all_.push_back(held);
  }
  bool take(Held *held) {
    std::lock_guard lock(mutex_);
    if (all_.empty()) return false;
    *held = all_.back();
    all_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Held> all_;
};

class Worker {
 public:
  Worker(unsigned number, CUcontext primary, Shared &shared)
      : number_(number), primary_(primary), shared_(shared), random_(number) {
    for (const ProcessMaker &maker : process_makers()) {
      if (!maker.hides) process_makers_.push_back(&maker);
    }
  }

  void run(double end_ms) {
    while (now_ms() < end_ms) step();
    if (context_ != 0) close_context();
  }

 private:
  unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }
  const Maker *one_of(const std::vector<Maker> &all) { return &all[pick(static_cast<unsigned>(all.size()))]; }

  void open_context() {
    do {
      context_maker_ = one_of(context_makers_);
    } while (is_primary(context_maker_->symbol));  // that one is everybody's
    if (!had(context_maker_->make(&context_, number_ % 2), context_maker_->symbol)) context_ = 0;
  }
  void close_context() {
    must(DRIVER(cuCtxSetCurrent)(reinterpret_cast<CUcontext>(context_)), "cuCtxSetCurrent");
    // Not all goes down with it.
    for (const Held &held : held_) {
      if (held.process_maker != nullptr) held.drop();
    }
    must(find_releaser(context_maker_->release)->release(context_), context_maker_->release);
    context_ = 0;
    held_.clear();
  }
  void allocate(bool for_all) {
    const std::uint64_t bytes = (1 + pick(4)) * kBlock;
    Held made = {};
    if (pick(2) == 0) {
      const Maker *maker = one_of(allocators_);
      made.release = maker->release;
      if (!had(maker->make(&made.handle, bytes), maker->symbol)) return;
    } else {
      made.process_maker = process_makers_[pick(static_cast<unsigned>(process_makers_.size()))];
      const CUdevice device = for_all ? 0 : static_cast<CUdevice>(number_ % 2);
      if (!had(made.process_maker->make(&made.handle, bytes, device), made.process_maker->name)) return;
    }
    if (for_all) {
      shared_.put(made);
    } else {
      held_.push_back(made);
    }
  }
  void free_one(bool for_all) {
    Held gone = {};
    if (for_all) {
      if (shared_.take(&gone)) gone.drop();
    } else if (!held_.empty()) {
      std::swap(held_[pick(static_cast<unsigned>(held_.size()))], held_.back());
      held_.back().drop();
      held_.pop_back();
    }
  }
  void load_and_unload() {
    const Maker *maker = one_of(loaders_);
    Held module = {maker->release, nullptr, 0};
    if (had(maker->make(&module.handle, pick(2) * kBlock), maker->symbol)) module.drop();
  }
  void look() {
    std::size_t free = 0, total = 0;
    must(DRIVER(cuMemGetInfo_v2)(&free, &total), "cuMemGetInfo_v2");
    if (total != kLimit || free > total) fail("memory is not as it should be", static_cast<int>(free >> 20));
  }
  void use_primary() {
    CUcontext context = nullptr;
    must(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
    must(DRIVER(cuDevicePrimaryCtxRelease_v2)(0), "cuDevicePrimaryCtxRelease_v2");
  }

  void step() {
    const bool for_all = context_ == 0 || pick(3) == 0;
    must(DRIVER(cuCtxSetCurrent)(for_all ? primary_ : reinterpret_cast<CUcontext>(context_)), "cuCtxSetCurrent");
    const unsigned what = pick(100);
    if (what < 45) {
      allocate(for_all);
    } else if (what < 85) {
      free_one(for_all);
    } else if (what < 90) {
      look();
    } else if (what < 93) {
      load_and_unload();
    } else if (what < 96) {
      use_primary();
    } else if (context_ == 0) {
      open_context();
    } else {
      close_context();
    }
  }

  const unsigned number_;
  const CUcontext primary_;
  Shared &shared_;
  std::mt19937 random_;
  const std::vector<Maker> allocators_ = makers_of(Family::allocation);
  const std::vector<Maker> loaders_ = makers_of(Family::module);
  const std::vector<Maker> context_makers_ = makers_of(Family::context);
  std::vector<const ProcessMaker *> process_makers_;
  const Maker *context_maker_ = nullptr;
  std::uint64_t context_ = 0;
  std::vector<Held> held_;
};

// Where NVML has whims, or is slow as under a sanitizer, no single measurement is sure to come; one of many is. After an
// answer that took very long, ten seconds pass without any.
void wait_for_measurement() {
  for (const double end_ms = now_ms() + 30000; now_ms() < end_ms;) {
    std::size_t free = 0, total = 0;
    must(DRIVER(cuMemGetInfo_v2)(&free, &total), "cuMemGetInfo_v2");
    if (free == kLimit - kBare - kLeft) return;
    sleep_ms(50);
    must(DRIVER(cuCtxSynchronize)(), "cuCtxSynchronize");
  }
}

int run_program() {
  CUcontext primary = nullptr;
  must(DRIVER(cuInit)(0), "cuInit");
  must(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0), "cuDevicePrimaryCtxRetain");
  Shared shared;
  const double end_ms = now_ms() + std::min(stress_seconds(), 10.0) * 1000;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { Worker(i, primary, shared).run(end_ms); });
  }
  for (std::thread &thread : threads) thread.join();

  must(DRIVER(cuCtxSetCurrent)(primary), "cuCtxSetCurrent");
  for (Held held; shared.take(&held);) held.drop();
  must(DRIVER(cuCtxSynchronize)(), "cuCtxSynchronize");
  for (const CUdevice device : {0, 1}) must(DRIVER(cuDeviceGraphMemTrim)(device), "cuDeviceGraphMemTrim");
  CUdeviceptr left = 0;
  must(DRIVER(cuMemAlloc_v2)(&left, kLeft), "cuMemAlloc_v2");
  CUmodule module = nullptr;
  must(DRIVER(cuModuleLoadData)(&module, module_image(0).c_str()), "cuModuleLoadData");
  must(DRIVER(cuModuleUnload)(module), "cuModuleUnload");
  wait_for_measurement();  // of a process in which nothing happens any more
  std::puts("done");
  std::fflush(stdout);
  return std::getchar() == EOF ? 0 : 1;  // for as long as the test looks
}

class ThreadsTest : public HooksTest {};

TEST_F(ThreadsTest, NothingIsLostBetweenThem) {
  limit_to(kLimit);
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  std::vector<std::string> environment = node().environment();
  environment.push_back("VGPU_REGION=" + region());
  const pid_t program =
      launch({std::filesystem::read_symlink("/proc/self/exe"), {kRole}, environment, {sockets[1], sockets[1], -1}, -1});
  close(sockets[1]);
  char answer[16] = "";
  EXPECT_GT(recv(sockets[0], answer, sizeof answer - 1, 0), 0);
  EXPECT_STREQ(answer, "done\n");
  expect_held(kContext + kLeft, 0);
  expect_held(0, 1);
  close(sockets[0]);
  EXPECT_EQ(wait_for(program), 0);
}

}  // namespace
}  // namespace vgpu::test

int main(int argc, char **argv) {
  if (argc == 2 && std::strcmp(argv[1], vgpu::test::kRole) == 0) return vgpu::test::run_program();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
