#include "cases.h"

namespace vgpu::truth {
namespace {

constexpr std::uint64_t kGiB = 1024 * kMiB;

void make_context(Program &rank) { rank.ask("make cuCtxCreate_v2 0"); }

// As a runtime does, and numba: the primary context, and a question for free memory before anything else.
void retain_primary(Program &rank) {
  const test::Answer context = rank.ask("make cuDevicePrimaryCtxRetain 0");
  if (context.result != 0) return;
  rank.must("current " + test::text(context.number()));
  rank.must("info");
}

// Sizes just above a block take two of them.
void odd_blocks(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "odd", kGiB, manner);
  Program &rank = job.start();
  make_context(rank);
  for (unsigned i = 0; i < 503 && job.fill(rank, 2 * kMiB + 1, 1) == 1; ++i) job.look();
  job.rest();
  job.end(judge);
}

// Small ones come out of blocks that the driver opens for each size.
void small_pieces(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "small", 128 * kMiB, manner);
  Program &rank = job.start();
  make_context(rank);
  for (unsigned i = 0; i < 4000; ++i) {
    const std::uint64_t sizes[] = {512, 40'000, 300'000, 1'100'000};
    if (job.fill(rank, sizes[i % 4], 1) == 0) break;
    if (i % 16 == 0) job.look();
  }
  job.rest();
  job.end(judge);
}

// NVML shows none of them before each has taken what it wants.
void eight_ranks(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "eight", kGiB, manner);
  job.start_at_once(8, [&](Program &rank) {
    make_context(rank);
    job.fill(rank, 16 * kMiB);
  });
  job.rest();
  job.end(judge);
}

void four_runtimes(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "four", 4 * kGiB, manner);
  job.start_at_once(4, [&](Program &rank) {
    retain_primary(rank);
    job.fill(rank, 64 * kMiB);
  });
  job.rest();
  job.end(judge);
}

// After its start it allocates nothing, and has a sibling that does.
void launches_only(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "launches", kGiB, manner);
  Program &quiet = job.start();
  retain_primary(quiet);
  job.fill(quiet, 1'700'000, 1);
  for (const char *kernel : {"1us", "2us", "3us"}) quiet.must("call cuLaunchKernel " + std::string(kernel) + " 4");
  job.look();
  test::sleep_ms(100);
  Program &greedy = job.start();
  retain_primary(greedy);
  job.fill(greedy, 16 * kMiB);
  job.rest();
  job.end(judge);
}

// Four jobs that together have all the memory there is.
void four_jobs(const test::Node &node, const Manner &manner, Judge *judge) {
  Manner brief = manner;
  brief.rest_ms = 0;
  std::vector<std::unique_ptr<Job>> jobs;
  for (unsigned i = 0; i < 4; ++i) {
    const Manner &its = i == 3 ? manner : brief;
    Job &job = *jobs.emplace_back(std::make_unique<Job>(node, "job" + test::text(i), 4000 * kMiB, its));
    Program &rank = job.start();
    retain_primary(rank);
    job.fill(rank, 32 * kMiB);
    job.rest();
  }
  for (const auto &job : jobs) job->end(judge);
}

void one_rank_of_2_gib(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "one", 2 * kGiB, manner);
  Program &rank = job.start();
  make_context(rank);
  job.fill(rank, 100 * kMiB);
  job.rest();
  job.fill(rank, 100 * kMiB);
  job.end(judge);
}

// What its maker has freed stays where a sibling has it open.
void ipc_loop(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "ipc", kGiB, manner);
  Program &maker = job.start();
  make_context(maker);
  Program &user = job.start();
  make_context(user);
  for (unsigned round = 0; round < 40; ++round) {
    const test::Answer made = maker.ask("make cuMemAlloc_v2 " + test::text(128 * kMiB));
    job.look();
    if (made.result != 0) break;
    const std::string handle = maker.ask("call cuIpcGetMemHandle " + test::text(made.number())).values.at(0);
    const test::Answer opened = user.ask("call cuIpcOpenMemHandle_v2 " + handle);
    EXPECT_EQ(opened.result, 0) << "round " << round
                                << (user.complaints().empty() ? "" : ": " + user.complaints().back());
    if (opened.result != 0) break;
    maker.drop("cuMemFree_v2", made.number());
    job.look();
  }
  job.rest();
  job.end(judge);
}

// Each takes code, and a look at NVML takes 10 ms.
void many_modules(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "modules", kGiB, manner);
  Program &rank = job.start();
  make_context(rank);
  for (unsigned i = 0; i < 200; ++i) {
    if (rank.ask("make cuModuleLoadData " + test::text(1000)).result != 0) break;
    if (i % 8 == 0) job.look();
  }
  job.look();
  job.fill(rank, 16 * kMiB);
  job.rest();
  job.end(judge);
}

// The first launch with a larger stack takes memory for all threads that could run; after that nothing may be had.
void larger_stack(const test::Node &node, const Manner &manner, Judge *judge) {
  Job job(node, "stack", 2 * kGiB, manner);
  Program &rank = job.start();
  make_context(rank);
  job.fill(rank, 64 * kMiB);
  job.look();
  rank.must("call cuCtxSetLimit 0 4096");
  rank.must("call cuLaunchKernel 1us 1");
  for (int i = 0; i < 20; ++i) {
    job.look();
    rank.must("call cuCtxSynchronize");
    test::sleep_ms(50);
  }
  job.fill(rank, 2 * kMiB, 8);
  job.rest();
  job.end(judge);
}

// What is left unused: less than a piece of those it asked for in vain, and where NVML says nothing, what a context might
// take beyond what it does.
constexpr Case kCases[] = {
    {"odd_blocks", "context=16MiB;", Nvml::helpful, 8, odd_blocks},
    {"small_pieces", "context=16MiB;", Nvml::helpful, 8, small_pieces},
    {"eight_ranks", "", Nvml::helpful, 20, eight_ranks},
    {"four_runtimes", "", Nvml::helpful, 68, four_runtimes},
    {"launches_only", "", Nvml::needed, 20, launches_only},
    {"four_jobs", "", Nvml::helpful, 36, four_jobs},
    {"nvml_says_0", "nvml_bytes=0;", Nvml::silent, 340 + 104, one_rank_of_2_gib},
    {"nvml_says_nothing", "nvml_bytes=none;", Nvml::silent, 340 + 104, one_rank_of_2_gib},
    {"ipc_loop", "", Nvml::helpful, 132, ipc_loop},
    {"many_modules", "nvml_time=10ms;", Nvml::needed, 20, many_modules},
    {"larger_stack", "sms=40;", Nvml::needed, 68, larger_stack},
};

}  // namespace

std::span<const Case> cases() { return kCases; }

Judge run_case(const Case &one, const Manner &manner) {
  const std::string description = manner.node + one.node + "idle_ms=300; device; name=Truth";
  const test::Node node(description.c_str());
  Judge judge;
  one.run(node, manner, &judge);
  return judge;
}

}  // namespace vgpu::truth
