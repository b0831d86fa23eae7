// Drivers that fail, are slow, or die under a process: whatever they do, the region says what is held.
#include <chrono>
#include <fstream>
#include <functional>

#include "cases.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr int kUnknown = CUDA_ERROR_UNKNOWN;

double seconds_of(const std::function<void()> &work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class FaultTest : public HooksTest {
 protected:
  void TearDown() override {
    node().set_faults("");
    HooksTest::TearDown();
  }
  // What is left of processes that are gone: nothing. The simulated node takes a moment to take memory back.
  void expect_left(std::uint64_t bytes, const std::string &after) {
    EXPECT_EQ(charged(), bytes) << after;
    for (int waited = 0; node().held(0) != bytes && waited < 5000; ++waited) sleep_ms(1);
    EXPECT_EQ(node().held(0), bytes) << after;
  }
  void expect_exact(const std::string &after) { EXPECT_EQ(charged(), node().held(0)) << after; }
};

// ---- every call that makes something --------------------------------------------------------------------------------

class EveryMakerTest : public FaultTest, public testing::WithParamInterface<Maker> {
 protected:
  void SetUp() override { limit_to(512 * kMiB); }

  const std::string symbol_ = GetParam().symbol;
  const std::string release_ = GetParam().release;
  const bool needs_context_ = GetParam().family != Family::context;

  std::uint64_t amount() const { return GetParam().family == Family::allocation ? 6 * kMiB : 0; }
  std::string make_line() const { return "make " + symbol_ + " " + text(amount()); }
  // Managed memory is charged before it is on the device, and a library before its code is.
  void bring_to_device(Program &program, std::uint64_t handle) const {
    if (symbol_ == "cuMemAllocManaged") program.must("touch " + text(handle) + " " + text(amount()));
    if (symbol_.rfind("cuLibrary", 0) == 0) program.must("code " + text(handle));
  }
  std::unique_ptr<Program> program() { return needs_context_ ? start_on(0) : start(); }
};

TEST_P(EveryMakerTest, WhatTheDriverRefusesIsGivenBack) {
  const auto program = this->program();
  // Twice: before anything of the kind is known, and when there has been one.
  for (int round = 0; round < 2; ++round) {
    const std::uint64_t before = charged();
    for (const int code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, CUDA_ERROR_LAUNCH_FAILED}) {
      node().set_faults(symbol_ + " fail " + text(code));
      const Answer answer = program->ask(make_line());
      EXPECT_EQ(answer.result, code);
      EXPECT_EQ(answer.number(), kUntouched) << "the output was touched";
      expect_held(before);
    }
    node().set_faults("");
    const std::uint64_t handle = program->must(make_line());
    bring_to_device(*program, handle);
    const std::uint64_t value = is_primary(symbol_) ? amount() : handle;
    const std::uint64_t with_it = charged();
    node().set_faults(release_ + " fail " + text(kUnknown));
    EXPECT_EQ(program->ask("drop " + release_ + " " + text(value)).result, kUnknown);
    EXPECT_EQ(charged(), with_it) << "nothing was released";
    node().set_faults("");
    program->drop(release_, value);
    expect_held(before);
  }
  EXPECT_EQ(program->complaints(), std::vector<std::string>{}) << "the driver's refusals are not ours to explain";
}

TEST_P(EveryMakerTest, KilledInsideIt) {
  const auto survivor = start_on(0);
  for (const char *when : {"before", "after"}) {
    for (const char *call : {"@1", "@2"}) {
      const auto victim = start({"SIMGPU_FAULTS=" + symbol_ + call + " kill " + when});
      if (needs_context_ || call[1] == '2') {
        // Of another make than the one that ends it.
        victim->make(symbol_ == "cuCtxCreate_v2" ? "cuDevicePrimaryCtxRetain" : "cuCtxCreate_v2", 0);
      }
      if (call[1] == '2') victim->must(make_line());
      victim->tell(make_line());
      const int status = victim->finish();
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << when << call;
      // In one call, without waiting.
      const std::uint64_t rest = 512 * kMiB - kContext;
      survivor->drop("cuMemFree_v2", survivor->make("cuMemAlloc_v2", rest));
      expect_left(kContext, std::string(when) + call);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, EveryMakerTest, testing::ValuesIn([] {
                           std::vector<Maker> all;
                           for (const Maker &maker : makers()) {
                             if (is_simulated(maker)) all.push_back(maker);
                           }
                           return all;
                         }()),
                         [](const auto &info) { return std::string(info.param.symbol); });

// ---- every other call that takes, keeps or gives back ---------------------------------------------------------------

// Lines for hooks_client. $N stands for the first value that line N answered, counted from 1; $N.1 for the second. Each
// line's call is failed before it is made. A line after `~` changes what is measured only with a later allocation.
struct Script {
  const char *name;
  std::vector<std::string> lines;
};

const Script kScripts[] = {
    {"pools",
     {"call cuMemPoolCreate 0 1", "call cuMemAllocFromPoolAsync 4194304 0 $1", "call cuMemAllocAsync 4194304 0",
      "call cuMemAllocAsync_ptsz 67108864 0", "call cuMemAllocFromPoolAsync_ptsz 67108864 0 $1",
      "call cuMemFreeAsync $2 0", "call cuMemFreeAsync_ptsz $3 0", "call cuCtxSynchronize", "drop cuMemFree_v2 $4",
      "call threshold $1 1073741824", "call cuMemFreeAsync $5 0", "call cuStreamSynchronize 0",
      "call cuMemPoolTrimTo $1 0", "call cuMemPoolDestroy $1", "call cuCtxSynchronize_v2 0"}},
    {"physical_memory",
     {"call cuMemCreate 6291456 0", "call cuMemAddressReserve 6291456", "call cuMemMap $2 6291456 $1",
      "call cuMemRetainAllocationHandle $2", "call cuMemRelease $1", "call cuMemRelease $4",
      "call cuMemUnmap $2 6291456", "call cuMemAddressFree $2 6291456"}},
    {"graphs",
     {"call cuGraphCreate", "call cuGraphAddMemAllocNode $1 0 6291456 0", "call cuGraphAddMemFreeNode $1 $2 $2.1",
      "call cuGraphInstantiateWithFlags $1 0", "call cuGraphUpload $4 0", "call cuGraphLaunch $4 0",
      "call cuGraphLaunch_ptsz $4 0", "call cuCtxSynchronize", "call cuGraphExecDestroy $4",
      "call cuDeviceGraphMemTrim 0", "call cuGraphInstantiate_v2 $1 0", "call cuGraphUpload_ptsz $11 0",
      "call cuGraphLaunch $11 0", "call cuCtxSynchronize", "call cuGraphExecDestroy $11", "call cuGraphDestroy $1",
      "call cuDeviceGraphMemTrim 0"}},
    {"graphs_without_memory",
     {"call cuGraphCreate", "call cuGraphAddEmptyNode $1 0", "call cuGraphClone $1", "call cuGraphInstantiate $3 0",
      "call cuGraphExecUpdate $4 $1", "call cuGraphExecUpdate_v2 $4 $1", "call cuGraphLaunch $4 0",
      "call cuGraphExecDestroy $4", "call cuGraphDestroy $3", "call cuGraphDestroy $1"}},
    {"memory_that_a_graph_leaves",
     {"call cuGraphCreate", "call cuGraphAddNode $1 0 6291456 0", "call cuGraphInstantiateWithParams $1 0",
      "call cuGraphLaunch $3 0", "drop cuMemFree_v2 $2.1", "call cuGraphLaunch $3 0", "call cuMemFreeAsync $2.1 0",
      "call cuCtxSynchronize", "call cuGraphExecDestroy $3", "call cuGraphDestroy $1", "call cuDeviceGraphMemTrim 0"}},
    {"contexts",
     {"call cuGreenCtxCreate 0", "call cuCtxFromGreenCtx $1", "call cuGreenCtxDestroy $1",
      "call cuCtxSetLimit 2 67108864", "call cuCtxSetLimit 2 8388608"}},
    {"libraries",
     {"make cuLibraryLoadData 6291456", "~call cuLibraryGetModule $1", "~call cuLibraryGetGlobal $1",
      "call cuKernelGetFunction $1", "call cuFuncLoad $4", "drop cuLibraryUnload $1"}},
    {"external_memory",
     {"call memfd 4194304", "~call cuImportExternalMemory $1 4194304",
      "call cuExternalMemoryGetMappedBuffer $2 4194304", "drop cuMemFree_v2 $3", "~call cuDestroyExternalMemory $2"}},
};

class ScriptTest : public FaultTest, public testing::WithParamInterface<Script> {
 protected:
  void SetUp() override {
    limit_to(768 * kMiB);
    program_ = start_on(0);
  }
  void TearDown() override {
    program_.reset();
    FaultTest::TearDown();
  }

  // With what earlier lines answered in its places.
  std::string complete(std::string line) const {
    for (std::size_t at; (at = line.find('$')) != std::string::npos;) {
      std::size_t digits = 0;
      const std::size_t number = std::stoul(line.substr(at + 1), &digits);
      std::size_t end = at + 1 + digits;
      const bool second = line.compare(end, 2, ".1") == 0;
      if (second) end += 2;
      line.replace(at, end - at, text(answers_.at(number - 1).number(second ? 1 : 0)));
    }
    return line;
  }
  static std::string symbol_of(const std::string &line) {
    std::istringstream words(line);
    std::string verb, symbol;
    words >> verb >> symbol;
    return symbol;
  }
  void allocate_soon() {
    sleep_ms(25);
    program_->drop("cuMemFree_v2", program_->make("cuMemAlloc_v2", 2 * kMiB));
  }
  void run(const std::string &line) { answers_.push_back(program_->ask(complete(line))); }
  // Whether all that the line needs has been made.
  bool is_possible(const std::string &line) const {
    for (std::size_t at = 0; (at = line.find('$', at)) != std::string::npos; ++at) {
      if (answers_.at(std::stoul(line.substr(at + 1)) - 1).result != 0) return false;
    }
    return true;
  }

  std::unique_ptr<Program> program_;
  std::vector<Answer> answers_;
};

TEST_P(ScriptTest, EveryCallFailsOnceAndTheBooksStayExact) {
  for (std::string line : GetParam().lines) {
    const bool late = line[0] == '~';
    if (late) line.erase(0, 1);
    const std::string symbol = symbol_of(line);
    if (symbol.rfind("cu", 0) == 0) {
      const std::uint64_t held = node().held(0);
      node().set_faults(symbol + " fail " + text(kUnknown));
      EXPECT_EQ(program_->ask(complete(line)).result, kUnknown) << line;
      node().set_faults("");
      EXPECT_EQ(node().held(0), held) << line;
      expect_exact(line + " failed");
    }
    run(line);
    EXPECT_EQ(answers_.back().result, 0) << line;
    if (late) allocate_soon();
    expect_exact(line);
  }
  expect_held(kContext);
  EXPECT_EQ(program_->complaints(), std::vector<std::string>{});
}

// What the library itself asks the driver may fail, too. Then it knows less, but the program gets what it asks for.
TEST_P(ScriptTest, WhateverTheLibraryAsksFails) {
  const char *const asked[] = {
#define CUDA_HOOK(...)
#define NVML_HOOK(...)
#define CUDA_CALL(symbol) #symbol,
#define NVML_CALL(symbol) #symbol,
#include "driver/table.def"
#undef CUDA_HOOK
#undef NVML_HOOK
#undef CUDA_CALL
#undef NVML_CALL
  };
  for (const std::string symbol : asked) {
    answers_.clear();
    program_ = start_on(0);
    node().set_faults(symbol + " fail 999");
    for (const std::string &line : GetParam().lines) {
      if (!is_possible(line)) {
        answers_.push_back({});
        continue;
      }
      run(line[0] == '~' ? line.substr(1) : line);
      EXPECT_NE(answers_.back().result, -1) << line << ", while " << symbol << " fails";
    }
    EXPECT_EQ(program_->finish(), 0) << symbol;
    node().set_faults("");
    unsigned reclaimed = 0;
    EXPECT_FALSE(sweep_region(region().c_str(), Trust::root_or_self, &reclaimed));
    expect_left(0, symbol);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ScriptTest, testing::ValuesIn(kScripts),
                         [](const auto &info) { return std::string(info.param.name); });

// What does not fit and cannot be undone either is there, and counts.
class UndoTest : public FaultTest, public testing::WithParamInterface<const char *> {};

TEST_P(UndoTest, AContextThatTheDriverDoesNotUndo) {
  limit_to(kContext - 2 * kMiB);
  const auto program = start();
  node().set_faults("cuCtxDestroy_v2 fail 999; cuDevicePrimaryCtxRelease_v2 fail 999");
  EXPECT_EQ(program->ask(std::string("make ") + GetParam() + " 0").result, CUDA_ERROR_OUT_OF_MEMORY);
  node().set_faults("");
  EXPECT_EQ(node().held(0), kContext);
  if (is_primary(GetParam())) program->must("current " + text(program->make(GetParam(), 0)));
  sleep_ms(25);
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 2097152").result, CUDA_ERROR_OUT_OF_MEMORY);
  expect_held(kContext);
}

INSTANTIATE_TEST_SUITE_P(Every, UndoTest, testing::Values("cuCtxCreate_v2", "cuDevicePrimaryCtxRetain"),
                         [](const auto &info) { return std::string(info.param); });

// ---- NVML -----------------------------------------------------------------------------------------------------------

class NvmlFaultTest : public FaultTest {
 protected:
  void SetUp() override { limit_to(512 * kMiB); }
};

TEST_F(NvmlFaultTest, FailingFromTheStartLeavesOnlyHiddenMemoryUnknown) {
  const auto program = start({"SIMGPU_FAULTS=nvml* fail 999"});
  const std::uint64_t context = program->make("cuCtxCreate_v2", 0);
  const std::uint64_t unseen = charged();
  EXPECT_EQ(unseen, kGuess);
  const std::uint64_t pointer = program->make("cuMemAlloc_v2", 6 * kMiB);
  const std::uint64_t module = program->make("cuModuleLoadData", 0);
  EXPECT_EQ(charged(0, Kind::data), 6 * kMiB);
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 " + text(512 * kMiB)).result, CUDA_ERROR_OUT_OF_MEMORY)
      << "the limit holds for what is known";
  program->drop("cuModuleUnload", module);
  program->drop("cuMemFree_v2", pointer);
  EXPECT_EQ(charged(), unseen);
  program->drop("cuCtxDestroy_v2", context);
  EXPECT_EQ(program->finish(), 0);
}

TEST_F(NvmlFaultTest, FailingForAWhileIsMadeUpForLater) {
  const auto program = start_on(0);
  const std::uint64_t library = program->make("cuLibraryLoadData", 8 * kMiB);
  node().set_faults("nvml* fail 999");
  program->must("code " + text(library));
  for (int i = 0; i < 20; ++i) {
    program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 2 * kMiB));
    sleep_ms(5);
  }
  EXPECT_EQ(charged(), kContext) << "what was known stays";
  node().set_faults("");
  program->drop("cuLibraryUnload", program->make("cuLibraryLoadData", 0));
  expect_held(kContext + kModule + 8 * kMiB);
}

TEST_F(NvmlFaultTest, SlowNvmlDelaysAProgramALittle) {
  const auto program = std::make_unique<Program>(node(), region(), std::vector<std::string>{});
  node().set_faults("nvml* delay 600");
  EXPECT_LT(seconds_of([&] { program->must("init"); }), 1.0) << "nothing of NVML's is needed to start";
  EXPECT_LT(seconds_of([&] { program->make("cuCtxCreate_v2", 0); }), 5.0);
  // A program that allocates all the time may be held up by NVML now and then, not each time: on an idle machine three times in
  // thousands, on a busy one in dozens.
  unsigned pairs = 0, held_up = 0;
  double longest = 0;
  for (double spent = 0; spent < 2.0; ++pairs) {
    const double once = seconds_of([&] { program->drop("cuMemFree_v2", program->make("cuMemAlloc_v2", 2 * kMiB)); });
    longest = std::max(longest, once);
    held_up += once > 0.5;
    spent += once;
  }
  EXPECT_LT(longest, 2.0);
  EXPECT_GT(pairs, 10 * held_up);
  EXPECT_EQ(charged(0, Kind::data), 0u);
}

// ---- a device that falls off the bus --------------------------------------------------------------------------------

TEST_F(FaultTest, ALostDevicesMemoryIsGivenBackWhenItsProcessesEnd) {
  limit_to(512 * kMiB);
  const auto victim = start_on(0);
  const auto neighbour = start_on(1);
  const std::uint64_t pointer = victim->make("cuMemAlloc_v2", 6 * kMiB);
  node().lose(0);
  for (const char *line : {"make cuMemAlloc_v2 4194304", "call cuMemAllocAsync 4194304 0", "call cuMemCreate 4194304 0",
                           "make cuModuleLoadData 0", "make cuCtxCreate_v2 0", "call cuCtxSynchronize"}) {
    EXPECT_EQ(victim->ask(line).result, kUnknown) << line;
    EXPECT_EQ(charged(), kContext + 6 * kMiB) << line;
  }
  EXPECT_EQ(victim->ask("drop cuMemFree_v2 " + text(pointer)).result, kUnknown);
  EXPECT_EQ(charged(), kContext + 6 * kMiB) << "it is still held";
  neighbour->drop("cuMemFree_v2", neighbour->make("cuMemAlloc_v2", 6 * kMiB));
  expect_held(kContext, 1);
  EXPECT_EQ(victim->complaints(), std::vector<std::string>{});
  EXPECT_EQ(victim->finish(), 0);
  node().set_broken(0, false);
  const auto next = start_on(0);
  next->drop("cuMemFree_v2", next->make("cuMemAlloc_v2", 512 * kMiB - kContext));
  expect_held(kContext);
}

}  // namespace
}  // namespace vgpu::test
