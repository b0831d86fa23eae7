// What a process says when it is refused something, to whom, and how often.
#include "hooks/cases.h"
#include "hooks/support.h"

namespace vgpu::test {

using namespace region;
namespace {

constexpr char kNotOurs[] =
    "vgpu: this GPU is not one of the job's, and nothing can be allocated on it; ask for more GPUs with --gres or set "
    "CUDA_VISIBLE_DEVICES to the job's";

class RefusalTest : public HooksTest {};

TEST_F(RefusalTest, NamesWhoHoldsIt) {
  limit_to(5 * kContext + 32 * kMiB);
  std::vector<std::unique_ptr<Program>> programs;
  for (const std::uint64_t mib : {2, 8, 4, 12, 6}) {
    programs.push_back(start_on(0));
    programs.back()->make("cuMemAlloc_v2", mib * kMiB);
  }
  EXPECT_EQ(programs[1]->ask("make cuMemAlloc_v2 1048576").result, kOutOfMemory);
  // The three that hold most, and what is left.
  const std::string holders = "; held by pid " + std::to_string(programs[3]->pid()) + " 76MiB, this process (pid " +
                              std::to_string(programs[1]->pid()) + ") 72MiB, pid " +
                              std::to_string(programs[4]->pid()) + " 70MiB, 2 others 134MiB";
  EXPECT_EQ(programs[1]->complaints(),
            std::vector<std::string>{refusal_line({0, "352MiB", "2MiB", "352MiB", holders})});
  EXPECT_EQ(programs[0]->complaints(), std::vector<std::string>{}) << "others hear nothing of it";
}

TEST_F(RefusalTest, SumsAreSeenToBeTooMuch) {
  limit_to(kContext + 10'000'000);  // 9.53 MiB
  const auto program = start_on(0);
  // The driver takes whole blocks only; the region counts anything.
  Region job;
  Rank odd;
  ASSERT_FALSE(Region::attach(region().c_str(), Trust::root_or_self, &job));
  ASSERT_FALSE(Rank::attach(job, &odd));
  ASSERT_EQ(odd.try_to_reserve(0, Kind::data, 1500), Grant::granted);
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 9437184").result, kOutOfMemory);
  const std::string holders = held_by_itself(*program, "64MiB") + ", pid " + std::to_string(getpid()) + " 1.5KiB";
  EXPECT_EQ(program->complaints(), std::vector<std::string>{refusal_line({0, "64.1MiB", "10MiB", "73.5MiB", holders})});
  odd.release(0, Kind::data, 1500);
}

TEST_F(RefusalTest, OneLineWhateverIsRefused) {
  limit_to(kContext + 2 * kMiB);
  const auto program = start_on(0);
  for (const Maker &maker : makers()) {
    const std::string line = std::string("make ") + maker.symbol;
    if (maker.family == Family::allocation) {
      EXPECT_EQ(program->ask(line + " 4194304").result, kOutOfMemory) << maker.symbol;
      EXPECT_EQ(program->ask("thread " + line + " 4194304").result, kOutOfMemory) << maker.symbol;
    } else if (maker.family == Family::context) {
      EXPECT_EQ(program->ask(line + " 0").result, kOutOfMemory) << maker.symbol;
    }
  }
  expect_held(kContext);
  EXPECT_EQ(program->complaints().size(), 1u);
}

TEST_F(RefusalTest, EveryProcessSaysItsOwn) {
  limit_to(2 * kContext);
  const auto first = start_on(0);
  const auto second = start_on(0);
  for (const auto &program : {first.get(), second.get()}) {
    EXPECT_EQ(program->ask("make cuMemAlloc_v2 4194304").result, kOutOfMemory);
    EXPECT_EQ(program->complaints().size(), 1u);
  }
}

TEST_F(RefusalTest, ADeviceThatIsNotTheJobs) {
  std::vector<DeviceSpec> devices = devices_of(node(), 512 * kMiB);
  devices.erase(devices.begin());
  make_region(devices);  // B is its device 0, C its device 1
  const auto program = start();
  for (const Maker &maker : makers()) {
    if (maker.family != Family::context) continue;
    const Answer answer = program->ask(std::string("make ") + maker.symbol + " 0");
    EXPECT_EQ(answer.result, kOutOfMemory) << maker.symbol;
    EXPECT_EQ(answer.number(), kUntouched) << maker.symbol;
  }
  EXPECT_EQ(node().held(0), 0u);
  EXPECT_EQ(program->complaints(), std::vector<std::string>{kNotOurs});

  program->make("cuCtxCreate_v2", 1);
  program->make("cuMemAlloc_v2", 4 * kMiB);
  EXPECT_EQ(charged(0), kContext + 4 * kMiB);
  EXPECT_EQ(node().held(1), kContext + 4 * kMiB);
}

TEST_F(RefusalTest, LimitsBelowAUnit) {
  limit_to(kContext + 511);
  const auto program = start_on(0);
  EXPECT_EQ(program->ask("make cuMemAlloc_v2 1").result, kOutOfMemory);
  expect_held(kContext);
  EXPECT_EQ(program->must("info"), 511u);
}

}  // namespace
}  // namespace vgpu::test
