// cuGetProcAddress, symbols, identity, NVML structures and the node's description.
#include <dlfcn.h>
#include <fcntl.h>
#include <nvml.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "simgpu/node/config.h"
#include "simgpu/nvml/memory_limits.h"
#include "support.h"

namespace {

void *symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

struct Request {
  const char *name;
  int version;
  cuuint64_t flags;
  const char *expected;  // null: none
  CUdriverProcAddressQueryResult status;
};

TEST(ProcAddress, AnswersLikeARealDriver) {
  const Request requests[] = {
      {"cuMemAlloc", 2000, 0, "cuMemAlloc", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemAlloc_v2", 13000, 0, nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
      {"cuNoSuchThing", 13000, 0, nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
      {"", 13000, 0, nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
      {"cuMemAllocAsync", 11010, 0, nullptr, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT},
      {"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemAllocAsync", 11020, 1, "cuMemAllocAsync", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemAllocAsync", 11020, 3, "cuMemAllocAsync_ptsz", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemFree", 13000, 2, "cuMemFree_v2", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuCtxCreate", 12020, 0, "cuCtxCreate_v3", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuCtxGetDevice", 12080, 0, "cuCtxGetDevice", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemPrefetchAsync", 12000, 0, "cuMemPrefetchAsync", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuMemPrefetchAsync", 12020, 2, "cuMemPrefetchAsync_v2_ptsz", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuGetProcAddress", 11030, 0, "cuGetProcAddress", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", CU_GET_PROC_ADDRESS_SUCCESS},
      {"cuGLGetDevices", 13000, 0, "cuGLGetDevices_v2", CU_GET_PROC_ADDRESS_SUCCESS},
  };
  for (const Request &r : requests) {
    void *function = &function;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    OK(cuGetProcAddress_v2(r.name, &function, r.version, r.flags, &status));
    EXPECT_EQ(r.expected != nullptr ? symbol(r.expected) : nullptr, function) << r.name << " " << r.version;
    EXPECT_EQ(r.status, status) << r.name << " " << r.version;
    OK(cuGetProcAddress_v2(r.name, &function, r.version, r.flags, nullptr));
    void *mark = &mark;
    CUresult first = cuGetProcAddress(r.name, &mark, r.version, r.flags);
    EXPECT_EQ(r.expected != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, first) << r.name;
    EXPECT_EQ(r.expected != nullptr ? symbol(r.expected) : &mark, mark) << r.name;
  }
  void *function;
  FAILS(INVALID_VALUE, cuGetProcAddress_v2(nullptr, &function, 13000, 0, nullptr));
  FAILS(INVALID_VALUE, cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, nullptr));
}

TEST(ProcAddress, TheOlderDriverHasNothingNewer) {
  std::string path = std::string(getenv("SIMGPU_BUILD")) + "/535/libcuda.so.1";
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nullptr, library) << dlerror();
  EXPECT_EQ(nullptr, dlsym(library, "cuCtxGetDevice_v2"));
  EXPECT_EQ(nullptr, dlsym(library, "cuMemGetMemPool"));
  auto get = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  auto version = reinterpret_cast<decltype(&cuDriverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  ASSERT_NE(nullptr, get);
  int number;
  OK(version(&number));
  EXPECT_EQ(12020, number);
  void *function;
  CUdriverProcAddressQueryResult status;
  OK(get("cuCtxGetDevice", &function, 13000, 0, &status));
  EXPECT_EQ(dlsym(library, "cuCtxGetDevice"), function);
  OK(get("cuMemGetMemPool", &function, 13000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  dlclose(library);
}

TEST(Entry, WhatIsNotSimulatedSaysSo) {
  OK(cuInit(0));
  FAILS(NOT_SUPPORTED, cuGraphConditionalHandleCreate(nullptr, nullptr, nullptr, 0, 0));
  const void *table;
  CUuuid id{};
  FAILS(NOT_SUPPORTED, cuGetExportTable(&table, &id));
  const char *text;
  OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ("CUDA_ERROR_OUT_OF_MEMORY", text);
  FAILS(INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(12345), &text));
}

TEST(Entry, DevicesAreWhatTheDescriptionSays) {
  OK(cuInit(0));
  int count, sms;
  char name[64], bus[32];
  size_t total;
  OK(cuDeviceGetCount(&count));
  ASSERT_EQ(2, count);
  OK(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_STREQ("Test GPU A", name);
  OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1));
  EXPECT_EQ(40, sms);
  OK(cuDeviceTotalMem_v2(&total, 0));
  EXPECT_EQ(kDeviceBytes, total);
  OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
  CUdevice found;
  OK(cuDeviceGetByPCIBusId(&found, bus));
  EXPECT_EQ(1, found);
  FAILS(INVALID_DEVICE, cuDeviceGetName(name, sizeof name, 2));
}

class Nvml : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(NVML_SUCCESS, nvmlInit_v2());
    ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(0, &device_));
  }
  void TearDown() override { nvmlShutdown(); }
  nvmlDevice_t device_ = nullptr;
};

TEST_F(Nvml, IsCounted) {
  EXPECT_EQ(NVML_SUCCESS, nvmlInit_v2());
  EXPECT_EQ(NVML_SUCCESS, nvmlShutdown());
  unsigned count;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetCount_v2(&count));
  EXPECT_EQ(2u, count);
  EXPECT_EQ(NVML_SUCCESS, nvmlShutdown());
  EXPECT_EQ(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
  EXPECT_EQ(NVML_ERROR_UNINITIALIZED, nvmlShutdown());
  EXPECT_EQ(NVML_SUCCESS, nvmlInit_v2());
}

TEST_F(Nvml, MemoryInBothVersions) {
  ASSERT_TRUE(eventually([] { return held_bytes(0) == 0; })) << "clients of an earlier test";
  nvmlMemory_t one;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device_, &one));
  EXPECT_EQ(1040 * kMiB, one.total);
  EXPECT_EQ(16 * kMiB, one.used);
  nvmlMemory_v2_t two{};
  EXPECT_EQ(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlDeviceGetMemoryInfo_v2(device_, &two));
  two.version = nvmlMemory_v2;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetMemoryInfo_v2(device_, &two));
  EXPECT_EQ(16 * kMiB, two.reserved);
  EXPECT_EQ(0u, two.used);
  EXPECT_EQ(two.total, two.free + two.used + two.reserved);
}

TEST_F(Nvml, PciStructuresWriteNoFurtherThanTheirVersion) {
  nvmlPciInfo_t info;
  memset(&info, 0x5a, sizeof info);
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetPciInfo(device_, &info));
  EXPECT_STREQ("0000:10:00.0", info.busIdLegacy);
  EXPECT_EQ(0x5a5a5a5au, info.pciSubSystemId);
  EXPECT_EQ(0x5a, info.busId[0]);
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetPciInfo_v2(device_, &info));
  EXPECT_NE(0x5a5a5a5au, info.pciSubSystemId);
  EXPECT_EQ(0x5a, info.busId[0]);
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetPciInfo_v3(device_, &info));
  EXPECT_STREQ("00000000:10:00.0", info.busId);
}

TEST_F(Nvml, ProcessListsInAllVersions) {
  Client client;
  client.must("ctx 0");
  nvmlProcessInfo_v1_t one[2];
  unsigned count = 0;
  ASSERT_TRUE(eventually([&] {
    count = 0;
    return nvmlDeviceGetComputeRunningProcesses(device_, &count, nullptr) == NVML_ERROR_INSUFFICIENT_SIZE;
  }));
  EXPECT_EQ(1u, count);
  count = 2;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses(device_, &count, one));
  EXPECT_EQ(static_cast<unsigned>(client.pid()), one[0].pid);
  nvmlProcessInfo_v2_t two[2];
  count = 2;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v2(device_, &count, two));
  EXPECT_EQ(kContextBytes, two[0].usedGpuMemory);
  unsigned char raw[64];
  memset(raw, 0x5a, sizeof raw);
  count = 2;
  ASSERT_EQ(NVML_SUCCESS,
            nvmlDeviceGetComputeRunningProcesses_v3(device_, &count, reinterpret_cast<nvmlProcessInfo_t *>(raw)));
  EXPECT_EQ(0x5a, raw[24]);
  setenv("SIMGPU_NVML_PROCESS_BYTES", "32", 1);
  ASSERT_EQ(NVML_SUCCESS,
            nvmlDeviceGetComputeRunningProcesses_v3(device_, &count, reinterpret_cast<nvmlProcessInfo_t *>(raw)));
  unsetenv("SIMGPU_NVML_PROCESS_BYTES");
  EXPECT_EQ(0, raw[24]) << "the wide form of early 535 drivers";
  EXPECT_EQ(0x5a, raw[32]);
  count = 0;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetGraphicsRunningProcesses_v3(device_, &count, nullptr));
  EXPECT_EQ(0u, count);
}

// As NVIDIA's reference has them, for programs that were compiled with its header.
static_assert(sizeof(nvmlSetMemoryLimits_v1_t) == 24 && offsetof(nvmlSetMemoryLimits_v1_t, softLimit) == 8 &&
              offsetof(nvmlSetMemoryLimits_v1_t, hardLimit) == 16);
static_assert(sizeof(nvmlGetMemoryLimits_v1_t) == 32 && offsetof(nvmlGetMemoryLimits_v1_t, softLimit) == 8 &&
              offsetof(nvmlGetMemoryLimits_v1_t, hardLimit) == 16 &&
              offsetof(nvmlGetMemoryLimits_v1_t, currentUsed) == 24);

TEST_F(Nvml, MemoryLimitsAreKeptPerCgroup) {
  nvmlSetMemoryLimits_v1_t limits{"/", 10, 20};
  nvmlGetMemoryLimits_v1_t answer{"/", 0, 0, 0};
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetMemoryLimits_v1(device_, &answer));
  if (geteuid() != 0) {
    EXPECT_EQ(NVML_ERROR_NO_PERMISSION, nvmlDeviceSetMemoryLimits_v1(device_, &limits));
    return;
  }
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceSetMemoryLimits_v1(device_, &limits));
  Client client;
  client.must("ctx 0");
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetMemoryLimits_v1(device_, &answer));
  EXPECT_EQ(10u, answer.softLimit);
  EXPECT_EQ(20u, answer.hardLimit);
  EXPECT_EQ(kContextBytes, answer.currentUsed);
  limits.softLimit = 30;
  EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceSetMemoryLimits_v1(device_, &limits));
  limits = {"/", 0, NVML_DEVICE_MEMORY_LIMIT_MAX};
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceSetMemoryLimits_v1(device_, &limits));
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetMemoryLimits_v1(device_, &answer)) << "it was cleared";
  const std::string long_path(256, 'x');
  limits = {long_path.c_str(), 10, 20};
  EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceSetMemoryLimits_v1(device_, &limits));
}

TEST(Description, MistakesAreNamed) {
  struct {
    const char *text, *error;
  } rows[] = {
      {"memory = lots", "line 1: memory = lots: not a size (like 16GiB)"},
      {"\n\ncolour = red", "line 3: colour = red: no such key"},
      {"device\nuuid = 12", "line 2: uuid = 12: not a UUID"},
      {"device\npci = here", "line 2: pci = here: not a PCI bus id (0000:01:00.0)"},
      {"device\nsms = 0", "line 2: sms = 0: not a positive number"},
      {"nonsense", "line 1: nonsense: not `key = value`"},
  };
  for (const auto &row : rows) {
    simgpu::NodeConfig config;
    std::string error;
    EXPECT_FALSE(simgpu::parse_node_config(row.text, &config, &error));
    EXPECT_EQ(row.error, error);
  }
}

TEST(Description, DefaultsAndOrder) {
  simgpu::NodeConfig config;
  std::string error;
  ASSERT_TRUE(simgpu::parse_node_config("", &config, &error));
  ASSERT_EQ(2u, config.devices.size());
  EXPECT_EQ(16ull << 30, config.devices[0].memory_bytes);
  EXPECT_NE(simgpu::format_uuid(config.devices[0].uuid), simgpu::format_uuid(config.devices[1].uuid));
  simgpu::NodeConfig second;
  ASSERT_TRUE(simgpu::parse_node_config(
      "context = 1GiB # all\ndevice\npci = 0000:81:00.0\ndevice\npci = 0000:41:00.0\nname=X", &second, &error));
  EXPECT_STREQ("X", second.devices[0].name);  // PCI order
  EXPECT_EQ(1ull << 30, second.devices[1].context_bytes);
}

// One thread is held inside cuInit, by the lock of a node that somebody seems to be starting, while another forks.
[[noreturn]] void fork_during_init() {
  std::string usable = getenv("SIMGPU_NODE"), stuck = usable + "/stuck";
  mkdir(stuck.c_str(), 0755);
  int lock = open((stuck + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (flock(lock, LOCK_EX) != 0) _exit(98);
  setenv("SIMGPU_NODE", stuck.c_str(), 1);
  std::thread([] { cuInit(0); }).detach();
  usleep(100000);
  setenv("SIMGPU_NODE", usable.c_str(), 1);
  pid_t child = fork();
  if (child == 0) {
    alarm(5);
    _exit(cuInit(0));
  }
  int status = 0;
  waitpid(child, &status, 0);
  ctl("stop");
  usleep(100000);
  std::filesystem::remove_all(usable);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

TEST(InitDeathTest, AForkDuringInitLeavesTheChildAbleToStart) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // runs the program anew: here cuInit was called before
  EXPECT_EXIT(fork_during_init(), testing::ExitedWithCode(0), "");
}

}  // namespace
