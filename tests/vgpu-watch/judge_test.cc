// Who is found guilty by which samples, and who is not.
#include "utils/vgpu-watch/judge.h"

#include <gtest/gtest.h>

namespace vgpu::watch {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;
constexpr char kGpu[] = "GPU-a";

// A job with a limit of 1 GiB on one GPU, whose books have what its processes hold.
JobSeen job(std::uint32_t id, const std::vector<Holder> &holders, std::uint64_t limit = kGiB) {
  JobSeen seen;
  seen.id = id;
  seen.uid = 1000;
  seen.created = 1;
  DeviceSeen device;
  device.uuid = kGpu;
  device.limit = limit;
  device.holders = holders;
  for (const Holder &holder : holders) device.counted += holder.bytes;
  seen.devices = {device};
  return seen;
}

// NVML's figures of the whole GPU, of which `shared` bytes are listed more than once.
Sample sample_of(const std::vector<JobSeen> &jobs, std::uint64_t shared = 0) {
  Sample sample;
  sample.nvml = true;
  sample.jobs = jobs;
  Memory memory;
  for (const JobSeen &seen : jobs) {
    for (const Holder &holder : seen.devices[0].holders) memory.listed += holder.bytes;
  }
  memory.in_use = memory.listed - shared;
  sample.memory[kGpu] = memory;
  return sample;
}

Holder rank(int pid, std::uint64_t bytes) { return {pid, bytes, -1, Counted::yes}; }

std::vector<Finding> after(Judge &judge, unsigned times, const Sample &sample) {
  std::vector<Finding> all;
  for (unsigned i = 0; i < times; ++i) {
    for (Finding &finding : judge.judge(sample)) all.push_back(std::move(finding));
  }
  return all;
}

std::vector<Finding> after(unsigned times, const Sample &sample) {
  Judge judge;
  return after(judge, times, sample);
}

TEST(Judge, TooMuchInThreeSamplesInARowIsFound) {
  const Sample over = sample_of({job(7, {rank(11, 2 * kGiB)})});
  Judge judge;
  EXPECT_TRUE(after(judge, 2, over).empty());
  EXPECT_TRUE(after(judge, 1, sample_of({job(7, {rank(11, kGiB)})})).empty());
  EXPECT_TRUE(after(judge, 2, over).empty()) << "they were not in a row";
  const auto found = after(judge, 1, over);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].job_id, 7u);
  EXPECT_EQ(found[0].wrong, Wrong::memory);
  EXPECT_EQ(found[0].sentence, "holds 2GiB of GPU GPU-a, but its limit is 1GiB");
  ASSERT_EQ(found[0].guilty.size(), 1u);
  EXPECT_EQ(found[0].guilty[0].pid, 11);
  EXPECT_TRUE(found[0].is_new);
  // It goes on: found again, and said no more.
  const auto again = after(judge, 3, over);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_FALSE(again[0].is_new);
}

TEST(Judge, TheToleranceIsAsStated) {
  const std::uint64_t most = kGiB + 64 * kMiB + kGiB / 32;
  EXPECT_TRUE(after(20, sample_of({job(7, {rank(11, most)})})).empty());
  EXPECT_FALSE(after(3, sample_of({job(7, {rank(11, most + 1)})})).empty());
  EXPECT_FALSE(after(3, sample_of({job(7, {rank(11, most / 2), rank(12, most / 2 + 2)})})).empty());
}

TEST(Judge, SamplesWithoutNvmlAreNone) {
  const Sample over = sample_of({job(7, {rank(11, 2 * kGiB)})});
  Sample blind = over;
  blind.nvml = false;
  blind.jobs[0].devices[0].holders.clear();
  Judge judge;
  EXPECT_TRUE(after(judge, 2, over).empty());
  EXPECT_TRUE(after(judge, 5, blind).empty());
  EXPECT_EQ(after(judge, 1, over).size(), 1u);
}

TEST(Judge, WhoIsNotCountedIsGuiltyFirst) {
  const Holder cheat = {12, 2 * kGiB, -1, Counted::no};
  const auto found = after(3, sample_of({job(7, {rank(11, 512 * kMiB), cheat})}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].wrong, Wrong::memory);
  ASSERT_EQ(found[0].guilty.size(), 1u);
  EXPECT_EQ(found[0].guilty[0].pid, 12);
  EXPECT_EQ(found[1].wrong, Wrong::uncounted);
  EXPECT_EQ(found[1].sentence, "has a process that holds 2GiB of GPU GPU-a and runs without libvgpu");
}

TEST(Judge, BooksExcuseNobody) {
  // All of it is "counted": the books are the user's to write.
  JobSeen seen = job(7, {rank(11, 3 * kGiB), rank(12, 100 * kMiB)});
  const auto found = after(3, sample_of({seen}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].guilty.size(), 2u);
}

TEST(Judge, SharedMemoryCountsOnce) {
  // Four processes have the same 900 MiB, and the driver lists it for each.
  std::vector<Holder> holders;
  for (int pid = 11; pid < 15; ++pid) holders.push_back(rank(pid, 900 * kMiB));
  EXPECT_TRUE(after(20, sample_of({job(7, holders)}, 3 * 900 * kMiB)).empty());
  EXPECT_FALSE(after(3, sample_of({job(7, holders)})).empty()) << "without sharing it is too much";
  // Where the GPU does not say what it holds, nobody knows.
  Sample unknown = sample_of({job(7, holders)});
  unknown.memory.clear();
  EXPECT_TRUE(after(20, unknown).empty());
}

TEST(Judge, NobodyHidesBehindWhatAnotherUserShares) {
  std::vector<Holder> sharing;
  for (int pid = 11; pid < 15; ++pid) sharing.push_back(rank(pid, 900 * kMiB));
  JobSeen honest = job(7, sharing);
  JobSeen cheat = job(8, {rank(21, 3 * kGiB)});
  cheat.uid = 1001;
  const auto found = after(3, sample_of({honest, cheat}, 3 * 900 * kMiB));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].job_id, 8u);
}

TEST(Judge, NorBehindAJobOfTheirOwn) {
  std::vector<Holder> sharing;
  for (int pid = 11; pid < 20; ++pid) sharing.push_back(rank(pid, 900 * kMiB));
  const auto found = after(3, sample_of({job(7, sharing), job(8, {rank(21, 7 * kGiB)})}, 8 * 900 * kMiB));
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const Finding &one) { return one.job_id == 8; }));
}

TEST(Judge, ALoweredLimitIsKeptByTakingNoMore) {
  Judge judge;
  EXPECT_TRUE(after(judge, 5, sample_of({job(7, {rank(11, 4 * kGiB)}, 4 * kGiB)})).empty());
  EXPECT_TRUE(after(judge, 20, sample_of({job(7, {rank(11, 4 * kGiB)}, kGiB)})).empty());
  // NVML leaves it out once.
  EXPECT_TRUE(after(judge, 1, sample_of({job(7, {}, kGiB)})).empty());
  EXPECT_TRUE(after(judge, 20, sample_of({job(7, {rank(11, 4 * kGiB)}, kGiB)})).empty());
  EXPECT_TRUE(after(judge, 20, sample_of({job(7, {rank(11, 2 * kGiB)}, kGiB)})).empty());
  EXPECT_FALSE(after(judge, 3, sample_of({job(7, {rank(11, 3 * kGiB)}, kGiB)})).empty()) << "it took more";
}

TEST(Judge, SoIsOneThatWasLoweredBeforeAnybodyWatched) {
  JobSeen seen = job(7, {rank(11, 4 * kGiB)});
  seen.devices[0].former_limit = 4 * kGiB;
  Judge judge;
  EXPECT_TRUE(after(judge, 1, sample_of({seen})).empty());
  EXPECT_TRUE(after(judge, 20, sample_of({job(7, {rank(11, 4 * kGiB)})})).empty());
}

TEST(Judge, AJobWithTheSameNumberBeginsAnew) {
  Judge judge;
  JobSeen first = job(7, {rank(11, 2 * kGiB)});
  EXPECT_TRUE(after(judge, 2, sample_of({first})).empty());
  first.created = 2;
  EXPECT_TRUE(after(judge, 2, sample_of({first})).empty());
  EXPECT_EQ(after(judge, 1, sample_of({first})).size(), 1u);
}

TEST(Judge, GpuTimeIsAveraged) {
  Holder busy = {11, kMiB, 60, Counted::yes};
  JobSeen seen = job(7, {busy});
  seen.devices[0].sm_percent = 10;
  const auto found = after(kTimeSamples, sample_of({seen}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].wrong, Wrong::time);
  EXPECT_EQ(found[0].sentence, "used 60 % of the time of GPU GPU-a, but its share is 10 %");
  EXPECT_TRUE(after(kTimeSamples - 1, sample_of({seen})).empty());
  // A long kernel now and then, and the rest of the time nothing.
  JobSeen idle = seen;
  idle.devices[0].holders[0].sm_percent = 0;
  seen.devices[0].holders[0].sm_percent = 100;
  Judge judge;
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(after(judge, 2, sample_of({seen})).empty());
    EXPECT_TRUE(after(judge, 18, sample_of({idle})).empty());
  }
  // NVML does not know.
  seen.devices[0].holders[0].sm_percent = -1;
  EXPECT_TRUE(after(2 * kTimeSamples, sample_of({seen})).empty());
}

TEST(Judge, BooksAreHeldAgainstTheJob) {
  JobSeen seen = job(7, {rank(11, kMiB)});
  seen.books_trouble = "cannot be read";
  auto found = after(10, sample_of({seen}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sentence, "has books that cannot be read: cannot be read");

  seen.books_trouble.clear();
  seen.devices[0].adds_up = false;
  seen.devices[0].picture = 5;
  found = after(10, sample_of({seen}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sentence, "has books that do not add up for GPU GPU-a");
  // While everything changes they need not.
  Judge judge;
  for (unsigned i = 0; i < 20; ++i) {
    seen.devices[0].picture = i;
    EXPECT_TRUE(after(judge, 1, sample_of({seen})).empty());
  }

  JobSeen rewound = job(7, {rank(11, kMiB)});
  rewound.devices[0].counters.launches = 1000;
  EXPECT_TRUE(after(judge, 1, sample_of({rewound})).empty());
  rewound.devices[0].counters.launches = 999;
  found = after(judge, 1, sample_of({rewound}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sentence, "has books that went backwards for GPU GPU-a");

  JobSeen forged = job(7, {rank(11, 900 * kMiB)});
  forged.devices[0].counted = 100 * kMiB;
  found = after(kSlowSamples, sample_of({forged}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sentence, "holds 900MiB of GPU GPU-a, but its books have only 100MiB");
}

TEST(Judge, WhoMayBeCountedIsNotMissed) {
  EXPECT_TRUE(after(20, sample_of({job(7, {{11, 500 * kMiB, -1, Counted::unknown}})})).empty());
  EXPECT_TRUE(after(20, sample_of({job(7, {{11, 0, -1, Counted::no}})})).empty()) << "NVML does not know how much";
  Judge judge;
  for (int pid = 11; pid < 40; ++pid) {
    EXPECT_TRUE(after(judge, 2, sample_of({job(7, {{pid, 500 * kMiB, -1, Counted::no}})})).empty());
  }
}

}  // namespace
}  // namespace vgpu::watch
