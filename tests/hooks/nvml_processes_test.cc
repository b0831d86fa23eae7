// Who uses a device: a job sees its own processes, with what the node's books say of them, in every version of the lists.
#include "nvml_support.h"

namespace vgpu::test {

namespace {

struct List {
  const char *function;
  std::size_t stride;
};

const List kComputeLists[] = {
    {"ComputeRunningProcesses", 16}, {"ComputeRunningProcesses_v2", 24}, {"ComputeRunningProcesses_v3", 24}};
const List kOtherLists[] = {{"GraphicsRunningProcesses", 16},      {"GraphicsRunningProcesses_v2", 24},
                            {"GraphicsRunningProcesses_v3", 24},   {"MPSComputeRunningProcesses", 16},
                            {"MPSComputeRunningProcesses_v2", 24}, {"MPSComputeRunningProcesses_v3", 24}};

std::string ask_list(Client &client, const List &list, unsigned room) {
  return in_order(client.ask("list " + std::string(list.function) + " 0 " + std::to_string(room) + " " +
                             std::to_string(list.stride)),
                  3);
}

// What a list of `clients` looks like, in full.
std::string full(const List &list, const std::vector<const Client *> &clients) {
  return "0 " + std::to_string(clients.size()) + " " + std::to_string(clients.size() * list.stride) +
         as_listed(kFast, clients);
}

class Lists : public testing::Test {
 protected:
  Lists() {
    unsigned megabytes = 2;
    for (Client *client : {&first_, &second_, &other_, &stranger_}) {
      EXPECT_EQ("0", client->ask("ctx 0"));
      EXPECT_EQ("0", client->ask("alloc " + std::to_string(kMiB * megabytes)));
      megabytes += 2;
    }
  }

  Job job_, other_job_, free_job_{kNodeMemory};
  Client first_{&job_}, second_{&job_}, other_{&other_job_}, stranger_{nullptr};
  Client monitor_{&job_};
};

TEST_F(Lists, EveryVersionShowsTheJobsProcessesAndNoOthers) {
  for (const List &list : kComputeLists) {
    EXPECT_EQ(full(list, {&first_, &second_}), ask_list(first_, list, 64)) << list.function;
    EXPECT_EQ(full(list, {&first_, &second_}), ask_list(monitor_, list, 64)) << list.function;
    EXPECT_EQ(full(list, {&other_}), ask_list(other_, list, 64)) << list.function;
    EXPECT_EQ(full(list, {&first_, &second_, &other_, &stranger_}), ask_list(stranger_, list, 64)) << list.function;
  }
  for (const List &list : kOtherLists) EXPECT_EQ("0 0 0", ask_list(first_, list, 64)) << list.function;
}

TEST_F(Lists, AJobWithoutAMemoryLimitSeesItsOwnToo) {
  Client free(&free_job_);
  for (const List &list : kComputeLists) EXPECT_EQ("0 0 0", ask_list(free, list, 64));
  EXPECT_EQ("0", free.ask("ctx 0"));
  for (const List &list : kComputeLists) EXPECT_EQ(full(list, {&free}), ask_list(free, list, 64)) << list.function;
}

TEST_F(Lists, TooLittleRoomIsSaidWithTheJobsOwnNumber) {
  for (const List &list : kComputeLists) {
    EXPECT_EQ("7 2 0", ask_list(first_, list, 0)) << list.function;
    EXPECT_EQ("7 2 0", ask_list(first_, list, 1)) << list.function;
    EXPECT_EQ(full(list, {&first_, &second_}), ask_list(first_, list, 2)) << list.function;
    EXPECT_EQ("2", first_.ask("nowhere " + std::string(list.function) + " 0")) << list.function;
    EXPECT_EQ("7 1 0", ask_list(other_, list, 0)) << list.function;
  }
  for (const List &list : kOtherLists) EXPECT_EQ("0 0 0", ask_list(first_, list, 0)) << list.function;
}

TEST_F(Lists, ADriverThatWritesMoreThanItsHeaderSaysIsUnderstood) {
  Client here(&job_, Where::here, {{"SIMGPU_NVML_PROCESS_BYTES", "32"}});
  for (const List &list : {List{"ComputeRunningProcesses_v3", 32}, List{"ComputeRunningProcesses_v2", 24}}) {
    EXPECT_EQ(full(list, {&first_, &second_}), ask_list(here, list, 64)) << list.function;
    EXPECT_EQ(full(list, {&first_, &second_}), ask_list(here, list, 2)) << list.function;
    EXPECT_EQ("7 2 0", ask_list(here, list, 1)) << list.function;
  }
  // One entry, and that not NVML's first: nothing to compare it with.
  Client alone(&other_job_, Where::here, {{"SIMGPU_NVML_PROCESS_BYTES", "32"}});
  EXPECT_EQ(full({"", 32}, {&other_}), ask_list(alone, {"ComputeRunningProcesses_v3", 32}, 64));
}

TEST_F(Lists, TheDetailedListIsTheSame) {
  EXPECT_EQ("0 2" + as_listed(kFast, {&first_, &second_}), in_order(first_.ask("details 0 0 64 1"), 2));
  EXPECT_EQ("7 2", first_.ask("details 0 0 0 1"));
  EXPECT_EQ("7 2", first_.ask("details 0 0 1 1"));
  EXPECT_EQ("0 0", first_.ask("details 0 1 64 1"));
  EXPECT_EQ("0 0", first_.ask("details 0 2 64 1"));
  EXPECT_EQ("2 64", first_.ask("details 0 3 64 1"));          // no such mode
  EXPECT_EQ("25 64", first_.ask("details 0 0 64 33554456"));  // a version that is not there yet
  EXPECT_EQ("0 4" + as_listed(kFast, {&first_, &second_, &other_, &stranger_}),
            in_order(stranger_.ask("details 0 0 64 1"), 2));
}

TEST_F(Lists, AccountingKnowsTheJobsProcesses) {
  const List pids = {"AccountingPids", 4};
  const pid_t mine = first_.host_pid(), others = other_.host_pid();
  std::string expected = std::to_string(mine) + " " + std::to_string(second_.host_pid());
  EXPECT_EQ(in_order("0 2 8 " + expected, 3), ask_list(first_, pids, 64));
  EXPECT_EQ("7 2 0", ask_list(first_, pids, 0));
  EXPECT_EQ("7 2 0", ask_list(first_, pids, 1));
  EXPECT_EQ("0 1 " + std::to_string(held_bytes(kFast, mine)) + " 0", second_.ask("stats 0 " + std::to_string(mine)));
  EXPECT_EQ("6 0 0 0", second_.ask("stats 0 " + std::to_string(others)));
  EXPECT_EQ("0 1 " + std::to_string(held_bytes(kFast, others)) + " 0",
            stranger_.ask("stats 0 " + std::to_string(others)));
}

TEST_F(Lists, WhoIsGoneIsNotListed) {
  const pid_t gone = second_.host_pid();
  second_.kill_now();
  for (unsigned tries = 0; tries < 200 && held_bytes(kFast, gone) != 0; ++tries) sleep_ms(5);
  EXPECT_EQ(full(kComputeLists[0], {&first_}), ask_list(first_, kComputeLists[0], 64));
}

// More than the list has room for at first.
TEST_F(Lists, AFullDeviceIsListedWhole) {
  Client strangers(nullptr);
  ASSERT_EQ("0", strangers.ask("crowd 0 300"));
  for (const List &list : kComputeLists) {
    EXPECT_EQ(full(list, {&first_, &second_}), ask_list(first_, list, 2)) << list.function;
    EXPECT_EQ("7 304 0", ask_list(stranger_, list, 2));
  }
}

}  // namespace

}  // namespace vgpu::test
