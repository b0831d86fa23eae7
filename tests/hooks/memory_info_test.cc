// What a program is told about its memory: the job's limit and use, for the right device, however it counts devices.
#include <map>

#include "cases.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr std::uint64_t kMost32 = 0xffffffff;

class ViewTest : public HooksTest {
 protected:
  // Every device has a limit of its own, so that none can be taken for another.
  void limit_each() {
    std::vector<DeviceSpec> devices = devices_of(node(), kNoLimit);
    for (unsigned dev = 0; dev < devices.size(); ++dev) {
      devices[dev].memory_limit = (300 + 100 * dev) * kMiB;
      limits_[devices[dev].identity.uuid] = devices[dev].memory_limit;
    }
    make_region(devices);
  }
  // All that CUDA says about a device of the program.
  void expect_cuda(Program &program, unsigned ordinal) {
    const std::string device = " " + std::to_string(ordinal);
    const std::uint64_t limit = limits_.at(program.ask("uuid" + device).values.at(0));
    EXPECT_EQ(program.must("total" + device), limit);
    EXPECT_EQ(program.must("total32" + device), limit);
    const std::uint64_t context = program.make("cuCtxCreate_v2", ordinal);
    const std::uint64_t pointer = program.make("cuMemAlloc_v2", 4 * kMiB);
    for (const char *info : {"info", "info32"}) {
      const Answer answer = program.ask(info);
      EXPECT_EQ(answer.result, CUDA_SUCCESS);
      EXPECT_EQ(answer.number(1), limit);
      // Where what a context takes is not known and might not fit, the library waits until NVML shows it.
      EXPECT_EQ(answer.number(0) + kContext, limit - 4 * kMiB);
    }
    program.drop("cuMemFree_v2", pointer);
    program.drop("cuCtxDestroy_v2", context);
  }
  void expect_nvml(Program &program, unsigned index, std::uint64_t used = 0) {
    for (const char *question : {"nvml ", "nvml2 "}) {
      const Answer answer = program.ask(question + std::to_string(index));
      ASSERT_EQ(answer.result, 0);
      EXPECT_EQ(answer.values.at(0), node().uuid(index));
      EXPECT_EQ(answer.number(1), limits_.at(node().uuid(index)));
      EXPECT_EQ(answer.number(2), answer.number(1) - used);
      EXPECT_EQ(answer.number(3), used);
      EXPECT_EQ(answer.number(4), 0u) << "nothing of the job's share is reserved";
    }
  }

  std::map<std::string, std::uint64_t> limits_;
};

struct Numbering {
  const char *name;
  const char *visible;  // {A} {B} {C} stand for UUIDs, {a} for the beginning of one
  const char *order;
  const char *expected;  // the devices, as CUDA should show them
};

class NumberingTest : public ViewTest, public testing::WithParamInterface<Numbering> {
 protected:
  std::vector<std::string> environment() const {
    std::string list = GetParam().visible;
    for (unsigned dev = 0; dev < node().devices(); ++dev) {
      replace(&list, std::string("{") + "ABC"[dev] + "}", node().uuid(dev));
      replace(&list, std::string("{") + "abc"[dev] + "}", node().uuid(dev).substr(0, 12));
    }
    std::vector<std::string> variables = {std::string("CUDA_DEVICE_ORDER=") + GetParam().order};
    if (!list.empty()) variables.push_back("CUDA_VISIBLE_DEVICES=" + list);
    return variables;
  }
  void expect_all_of_cuda(Program &program) {
    const std::string expected = GetParam().expected;
    for (unsigned ordinal = 0; ordinal < expected.size(); ++ordinal) {
      EXPECT_EQ(program.ask("uuid " + std::to_string(ordinal)).values.at(0), node().uuid(expected[ordinal] - 'A'))
          << "the simulated driver numbers its devices otherwise";
      expect_cuda(program, ordinal);
    }
  }
  void expect_all_of_nvml(Program &program) {
    for (unsigned index = 0; index < node().devices(); ++index) expect_nvml(program, index);
  }

 private:
  static void replace(std::string *text, const std::string &what, const std::string &with) {
    const std::size_t at = text->find(what);
    if (at != std::string::npos) text->replace(at, what.size(), with);
  }
};

TEST_P(NumberingTest, CudaFirst) {
  limit_each();
  const auto program = start(environment());
  expect_all_of_cuda(*program);
  program->must("nvml init");
  expect_all_of_nvml(*program);
  expect_all_of_cuda(*program);
}

TEST_P(NumberingTest, NvmlFirst) {
  limit_each();
  Program program(node(), region(), environment());
  program.must("nvml init");
  expect_all_of_nvml(program);
  program.must("init");
  expect_all_of_cuda(program);
  expect_all_of_nvml(program);
}

constexpr Numbering kNumberings[] = {
    {"AllFastestFirst", "", "FASTEST_FIRST", "CAB"},
    {"AllByPlace", "", "PCI_BUS_ID", "ABC"},
    {"List", "1,2", "PCI_BUS_ID", "BC"},
    {"Reversed", "2,1,0", "PCI_BUS_ID", "CBA"},
    {"ReversedFastestFirst", "2,1,0", "FASTEST_FIRST", "BAC"},
    {"One", "1", "FASTEST_FIRST", "A"},
    {"Uuid", "{B}", "FASTEST_FIRST", "B"},
    {"Uuids", "{C},{A}", "PCI_BUS_ID", "CA"},
    {"AbbreviatedUuids", "{b},{a}", "FASTEST_FIRST", "BA"},
};
std::string name_of(const testing::TestParamInfo<Numbering> &info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Every, NumberingTest, testing::ValuesIn(kNumberings), name_of);

TEST_F(ViewTest, NvmlShowsTheWholeJob) {
  limit_each();
  const auto first = start_on(0);
  const auto second = start_on(0);
  second->make("cuMemAlloc_v2", 4 * kMiB);
  Program other(node(), "");
  other.must("init");
  other.make("cuCtxCreate_v2", 0);  // not the job's, and not shown
  first->must("nvml init");
  expect_nvml(*first, 0, 2 * kContext + 4 * kMiB);
  expect_nvml(*first, 1, 0);
  second->end(SIGKILL);
  sleep_ms(110);
  expect_nvml(*first, 0, kContext);
}

TEST_F(ViewTest, AProgramWithoutAContextSeesTheJobToo) {
  limit_each();
  const auto rank = start_on(0);
  Program monitor(node(), region());
  monitor.must("nvml init");
  expect_nvml(monitor, 0, kContext);
}

TEST_F(ViewTest, ALiveLimitIsSeenAtOnce) {
  limit_each();
  const auto program = start_on(0);
  program->must("nvml init");
  for (const std::uint64_t limit : {500 * kMiB, 100 * kMiB, 400 * kMiB}) {
    change_limit(0, limit);
    limits_[node().uuid(0)] = limit;
    const Answer info = program->ask("info");
    EXPECT_EQ(info.number(0), limit - kContext);
    EXPECT_EQ(info.number(1), limit);
    EXPECT_EQ(program->must("total 0"), limit);
    EXPECT_EQ(program->must("total32 0"), limit);
    expect_nvml(*program, 0, kContext);
  }
}

// Without a limit every figure is the driver's own.
TEST_F(ViewTest, WithoutALimitNothingChanges) {
  limit_to(kNoLimit);
  Program bare(node(), "");
  const auto rank = start();
  bare.must("init");
  rank->must("nvml init");
  bare.must("nvml init");
  for (unsigned device = 0; device < node().devices(); ++device) {
    rank->make("cuCtxCreate_v2", device);
    bare.make("cuCtxCreate_v2", device);
    rank->make("cuMemAlloc_v2", 4 * kMiB);
    rank->make("cuMemAlloc_v2", 1000);
    rank->make("cuMemAllocManaged", 512 * kMiB);  // on the host, and no business of cuMemGetInfo's
    std::vector<std::string> questions = {"info", "info32"};
    for (const char *question : {"total ", "total32 ", "nvml ", "nvml2 "}) {
      questions.push_back(question + std::to_string(device));
    }
    for (const std::string &question : questions) {
      const Answer ours = rank->ask(question), drivers = bare.ask(question);
      EXPECT_EQ(ours.result, 0) << question;
      EXPECT_EQ(ours.values, drivers.values) << question;
    }
  }
}

TEST_F(ViewTest, LargeLimitsSaturateThe32BitCalls) {
  std::vector<DeviceSpec> devices = devices_of(node(), 8192 * kMiB);
  make_region(devices);
  const auto program = start_on(kLate);
  EXPECT_EQ(program->must("total 2"), 8192 * kMiB);
  EXPECT_EQ(program->must("total32 2"), kMost32);
  const Answer info = program->ask("info32");
  EXPECT_EQ(info.number(0), kMost32);
  EXPECT_EQ(info.number(1), kMost32);
}

// Free is never more than what the device itself has left.
TEST_F(ViewTest, OthersOnTheDeviceAreSeenInWhatIsFree) {
  limit_to(768 * kMiB);
  const auto program = start_on(0);
  Program other(node(), "");
  other.must("init");
  other.make("cuCtxCreate_v2", 0);
  other.make("cuMemAlloc_v2", 512 * kMiB);
  const Answer info = program->ask("info");
  EXPECT_EQ(info.number(0), kDevice - 512 * kMiB - 2 * kContext);
  EXPECT_EQ(info.number(1), 768 * kMiB);
}

TEST_F(ViewTest, ADeviceThatIsNotTheJobsKeepsItsOwnFigures) {
  std::vector<DeviceSpec> devices = devices_of(node(), 512 * kMiB);
  devices.pop_back();
  make_region(devices);
  const auto program = start();
  program->must("nvml init");
  EXPECT_EQ(program->must("total 2"), 17 * 1024 * kMiB - 16 * kMiB);
  EXPECT_EQ(program->ask("nvml 2").number(1), 17 * 1024 * kMiB);
  EXPECT_EQ(program->must("total 1"), 512 * kMiB);
}

// Where the region knows no UUIDs, the place on the bus decides.
TEST_F(ViewTest, DevicesAreFoundByTheirPlaceWhereNoUuidIsKnown) {
  std::vector<DeviceSpec> devices = devices_of(node(), kNoLimit);
  for (unsigned dev = 0; dev < devices.size(); ++dev) {
    devices[dev].memory_limit = (300 + 100 * dev) * kMiB;
    limits_[node().uuid(dev)] = devices[dev].memory_limit;
    devices[dev].identity.uuid[0] = '\0';
  }
  make_region(devices);
  const auto program = start({"CUDA_VISIBLE_DEVICES=1,0"});
  expect_cuda(*program, 0);
  expect_cuda(*program, 1);
  program->must("nvml init");
  for (unsigned index = 0; index < node().devices(); ++index) expect_nvml(*program, index);
}

TEST_F(ViewTest, AfterAFreeAllIsFreeAgain) {
  limit_to(512 * kMiB);
  const auto program = start_on(0);
  const std::uint64_t before = program->must("info");
  EXPECT_EQ(before, 512 * kMiB - kContext);
  const std::uint64_t small = program->make("cuMemAlloc_v2", 4096), large = program->make("cuMemAlloc_v2", 6 * kMiB);
  EXPECT_EQ(program->must("info"), before - 2 * kMiB - 6 * kMiB);
  program->drop("cuMemFree_v2", large);
  program->drop("cuMemFree_v2", small);
  EXPECT_EQ(program->must("info"), before);
}

TEST_F(ViewTest, WrongQuestionsGetTheDriversAnswer) {
  limit_each();
  const auto program = start();
  EXPECT_EQ(program->ask("info").result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(program->ask("total 99").result, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(program->ask("total32 -1").result, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(program->ask("nvml 0").result, NVML_ERROR_UNINITIALIZED);
}

}  // namespace
}  // namespace vgpu::test
