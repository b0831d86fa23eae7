#include "stress_rank.h"

#include <sys/mman.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "cases.h"
#include "ledger.h"
#include "stress_makers.h"

namespace vgpu::test {
namespace {

constexpr std::uint64_t kBlockBytes = 2 << 20;

// Made by one or the other.
struct Held {
  const Maker *maker;
  const ProcessMaker *process_maker;
  std::uint64_t handle;
  std::uint64_t blocks;

  int drop() const {
    return maker != nullptr ? find_releaser(maker->release)->release(handle) : process_maker->release(handle);
  }
  const char *name() const { return maker != nullptr ? maker->symbol : process_maker->name; }
};

class StressRank {
 public:
  StressRank(Ledger &ledger, unsigned rank, unsigned seed)
      : ledger_(ledger), own_(ledger.ranks[rank]), rank_(rank), random_(seed) {}

  int run() {
    own_.hides.store(pick(2) == 0);
    for (const ProcessMaker &maker : process_makers()) {
      if (!maker.hides || own_.hides.load()) process_makers_.push_back(&maker);
    }
    must(DRIVER(cuInit)(0), "cuInit");
    if (!open_context()) return 0;
    const unsigned life = 500 + pick(20'000);
    for (unsigned i = 0; i < life && !ledger_.stop.load(); ++i) {
      step();
      own_.operations.fetch_add(1);
    }
    // Ends as it is, with all it has: the kernel takes it back.
    ledger_.set(rank_, dev_, 0);
    return 0;
  }

 private:
  unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }
  template <typename T>
  const T &one_of(const std::vector<T> &all) {
    return all[pick(static_cast<unsigned>(all.size()))];
  }

  [[noreturn]] void fail(const char *what, std::uint64_t value) {
    std::fprintf(stderr, "rank %u: %s: %llu\n", rank_, what, static_cast<unsigned long long>(value));
    std::_Exit(3);
  }
  void must(int result, const char *what) {
    if (result != CUDA_SUCCESS) fail(what, static_cast<unsigned>(result));
  }
  // Whether it was had. Nothing but the limit may refuse it.
  bool had(int result, const char *what) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      own_.refusals.fetch_add(1);
      return false;
    }
    must(result, what);
    return true;
  }
  static void pause() {
    const timespec moment = {0, 2'000'000};
    nanosleep(&moment, nullptr);
  }

  void write_down(std::uint64_t blocks) {
    ledger_.set(rank_, dev_, blocks);
    held_blocks_ = blocks;
  }

  bool open_context() {
    dev_ = pick(kStressDevices);
    context_maker_ = &one_of(context_makers_);
    while (!had(context_maker_->make(&context_, dev_), context_maker_->symbol)) {
      if (ledger_.stop.load()) return false;
      pause();
    }
    must(DRIVER(cuCtxSetCurrent)(reinterpret_cast<CUcontext>(context_)), "cuCtxSetCurrent");
    return true;
  }
  void close_context() {
    write_down(0);
    // Not all goes down with it.
    for (const Held &held : held_) {
      if (held.process_maker != nullptr) must(held.drop(), held.name());
    }
    const std::uint64_t value = is_primary(context_maker_->symbol) ? dev_ : context_;
    must(find_releaser(context_maker_->release)->release(value), context_maker_->release);
    held_.clear();
    // Modules went down with it; libraries belong to no context.
    for (const Held &module : modules_) {
      if (module.maker->release == std::string("cuLibraryUnload")) must(module.drop(), module.name());
    }
    modules_.clear();
  }

  void allocate() {
    Held made = {nullptr, nullptr, 0, 1 + pick(6)};
    if (pick(2) == 0) {
      made.maker = &one_of(allocators_);
      if (!had(made.maker->make(&made.handle, made.blocks * kBlockBytes), made.name())) return;
    } else {
      made.process_maker = one_of(process_makers_);
      const auto device = static_cast<CUdevice>(dev_);
      if (!had(made.process_maker->make(&made.handle, made.blocks * kBlockBytes, device), made.name())) return;
    }
    write_down(held_blocks_ + made.blocks);
    own_.allocations.fetch_add(1);
    own_.checks.fetch_add(ledger_.look(dev_));
    if (std::string(made.name()) == "cuMemAllocManaged" && pick(2) == 0) {
      must(DRIVER(cuMemPrefetchAsync)(made.handle, made.blocks * kBlockBytes, static_cast<CUdevice>(dev_), nullptr),
           "cuMemPrefetchAsync");
    }
    held_.push_back(made);
  }
  void free_one() {
    if (held_.empty()) return;
    std::swap(held_[pick(static_cast<unsigned>(held_.size()))], held_.back());
    const Held gone = held_.back();
    held_.pop_back();
    write_down(held_blocks_ - gone.blocks);
    must(gone.drop(), gone.name());
  }
  void change_modules() {
    if (!modules_.empty() && (modules_.size() > 2 || pick(2) == 0)) {
      must(modules_.back().drop(), modules_.back().name());
      modules_.pop_back();
      return;
    }
    Held made = {&one_of(loaders_), nullptr, 0, 0};
    if (had(made.maker->make(&made.handle, pick(2) * kBlockBytes), made.maker->symbol)) modules_.push_back(made);
  }
  void look_at_memory() {
    std::size_t free = 0, total = 0;
    must(DRIVER(cuMemGetInfo_v2)(&free, &total), "cuMemGetInfo_v2");
    if (total != ledger_.limit_blocks * kBlockBytes) fail("the limit, as shown", total);
    if (free + held_blocks_ * kBlockBytes > total) fail("more is free than can be", free);
  }

  void step() {
    const unsigned what = pick(1000);
    // Mostly at the limit: everybody wants more than his share.
    if (what < 500) {
      allocate();
    } else if (what < 920) {
      free_one();
    } else if (what < 960) {
      look_at_memory();
    } else if (what < 990) {
      change_modules();
    } else {
      close_context();
      open_context();  // if not, all is over
    }
  }

  Ledger &ledger_;
  RankLedger &own_;
  const unsigned rank_;
  std::mt19937 random_;
  const std::vector<Maker> allocators_ = makers_of(Family::allocation);
  const std::vector<Maker> loaders_ = makers_of(Family::module);
  const std::vector<Maker> context_makers_ = makers_of(Family::context);

  std::vector<const ProcessMaker *> process_makers_;
  unsigned dev_ = 0;
  const Maker *context_maker_ = nullptr;
  std::uint64_t context_ = 0;
  std::uint64_t held_blocks_ = 0;
  std::vector<Held> held_;
  std::vector<Held> modules_;
};

}  // namespace

int run_stress_rank(unsigned rank, unsigned seed) {
  void *memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, kLedgerDescriptor, 0);
  if (memory == MAP_FAILED) return 4;
  // Never deleted: what it holds when the process ends is not lost, and the kernel's to take back.
  static auto *const stress_rank = new StressRank(*static_cast<Ledger *>(memory), rank, seed);
  return stress_rank->run();
}

}  // namespace vgpu::test
