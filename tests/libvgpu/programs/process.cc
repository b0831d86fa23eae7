// What processes do around the driver. Each prints lines and ends with 0 if it saw what it should.  process WHAT [FILE]
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nvml.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "steps.h"

namespace {

constexpr size_t kMiB = 1 << 20;
const char *self;
const char *file;

int steps() { return run_steps({cuInit, cuCtxCreate_v2, cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2}); }

// A context and 100 MiB.
CUdeviceptr start() {
  CUcontext context;
  CUdeviceptr held = 0;
  const bool good = cuInit(0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0 && cuMemAlloc_v2(&held, 100 * kMiB) == 0;
  if (!good) _exit(3);
  return held;
}

int wait_for(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// A child that never touches the driver ends as a program does, with destructors; nothing changes for its parent.
int idle_child() {
  start();
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  if (report("child", wait_for(child)) != 0) return 1;
  hold();
  return 0;
}

// The driver first used in a child: a rank of its own.
int forked_rank() {
  const pid_t child = fork();
  if (child == 0) std::exit(steps());
  return wait_for(child);
}

int spawned_children() {
  start();
  const pid_t vforked = vfork();
  if (vforked == 0) {
    execl("/bin/true", "true", nullptr);
    _exit(9);
  }
  if (report("vfork", wait_for(vforked)) != 0) return 1;
  pid_t spawned = 0;
  char name[] = "true";
  char *arguments[] = {name, nullptr};
  if (posix_spawn(&spawned, "/bin/true", nullptr, nullptr, arguments, environ) != 0) return 1;
  if (report("spawn", wait_for(spawned)) != 0) return 1;
  if (report("system", std::system("exit 0")) != 0) return 1;
  hold();
  return 0;
}

int replaced() {
  start();
  execl(self, self, "steps", nullptr);
  return 9;
}

int threads() {
  const CUdeviceptr held = start();
  CUcontext context;
  cuCtxGetCurrent(&context);
  std::vector<std::thread> workers;
  bool good[8] = {};
  for (bool &result : good) {
    workers.emplace_back([&] {
      result = cuCtxSetCurrent(context) == 0;
      for (int i = 0; i < 200; ++i) {
        CUdeviceptr pointer = 0;
        result = cuMemAlloc_v2(&pointer, 2 * kMiB) == 0 && cuMemFree_v2(pointer) == 0 && result;
      }
    });
  }
  for (std::thread &worker : workers) worker.join();
  for (const bool result : good) {
    if (!result) return 1;
  }
  hold();
  return cuMemFree_v2(held);
}

// Closes the libraries and opens them again, with what they left to us.
int reopened() {
  for (int i = 0; i < 3; ++i) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (nvml == nullptr) return 2;
    const auto init = reinterpret_cast<decltype(&nvmlInit_v2)>(dlsym(nvml, "nvmlInit_v2"));
    const auto handle =
        reinterpret_cast<decltype(&nvmlDeviceGetHandleByIndex_v2)>(dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"));
    const auto memory = reinterpret_cast<decltype(&nvmlDeviceGetMemoryInfo)>(dlsym(nvml, "nvmlDeviceGetMemoryInfo"));
    const auto shutdown = reinterpret_cast<decltype(&nvmlShutdown)>(dlsym(nvml, "nvmlShutdown"));
    nvmlDevice_t device;
    nvmlMemory_t info;
    if (init() != 0 || handle(0, &device) != 0 || memory(device, &info) != 0 || shutdown() != 0) return 1;
    if (info.total != 512 * kMiB) return report("nvml total", static_cast<int>(info.total / kMiB));
    dlclose(nvml);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    const auto version = reinterpret_cast<decltype(&cuInit)>(dlsym(cuda, "cuInit"));
    if (version(0) != 0) return 1;
    dlclose(cuda);
    dlclose(cuda);  // once more than we should, as some do
  }
  return steps();
}

CUdeviceptr left_for_later;

struct Cleaner {
  ~Cleaner() {
    if (left_for_later != 0) report("destructor", cuMemFree_v2(left_for_later));
  }
} cleaner;

int late() {
  start();
  if (cuMemAlloc_v2(&left_for_later, 2 * kMiB) != 0) return 1;
  std::atexit([] {
    CUdeviceptr pointer = 0;
    report("handler allocates", cuMemAlloc_v2(&pointer, 4 * kMiB));
    report("handler frees", cuMemFree_v2(pointer));
  });
  return 0;
}

// All descriptors closed, and the program's data under the numbers of the standard ones.
int reused_descriptors() {
  const int keep_in = fcntl(0, F_DUPFD, 100), keep_out = fcntl(1, F_DUPFD, 100);
  for (int fd = 0; fd < 100; ++fd) close(fd);
  for (int fd = 0; fd < 3; ++fd) {
    if (open(file, O_WRONLY | O_CREAT | O_APPEND, 0644) != fd) return 9;
  }
  CUdeviceptr refused = 0;
  start();
  const int result = cuMemAlloc_v2(&refused, 400 * kMiB);
  const int wrong = cuMemAllocAsync(&refused, 400 * kMiB, nullptr);
  if (write(2, "data\n", 5) != 5) return 9;
  dup2(keep_in, 0);
  dup2(keep_out, 1);
  report("over", result);
  report("async", wrong);
  return 0;
}

int closed_before() {
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  return steps();
}

// What descriptors are open once the driver works.
int descriptors() {
  start();
  std::multiset<std::string> targets;
  DIR *directory = opendir("/proc/self/fd");
  while (const dirent *entry = readdir(directory)) {
    char target[256];
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    if (length > 0) targets.insert(std::string(target, static_cast<size_t>(length)).substr(0, 8));
  }
  std::printf("%zu descriptors\n", targets.size());
  return 0;
}

int cleared_environment() {
  // All but what leads to the simulated node.
  std::vector<std::string> kept;
  for (char **entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "SIMGPU_", 7) == 0) kept.push_back(*entry);
  }
  clearenv();
  for (std::string &entry : kept) putenv(entry.data());
  return steps();
}

int refused_once() {
  start();
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr pointer = 0;
    report("over", cuMemAlloc_v2(&pointer, 400 * kMiB));
  }
  return 0;
}

constexpr struct {
  const char *name;
  int (*run)();
} kThings[] = {{"steps", steps},
               {"idle_child", idle_child},
               {"forked_rank", forked_rank},
               {"spawned_children", spawned_children},
               {"replaced", replaced},
               {"threads", threads},
               {"reopened", reopened},
               {"late", late},
               {"reused_descriptors", reused_descriptors},
               {"closed_before", closed_before},
               {"descriptors", descriptors},
               {"cleared_environment", cleared_environment},
               {"refused_once", refused_once}};

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  self = argv[0];
  file = argc > 2 ? argv[2] : nullptr;
  for (const auto &thing : kThings) {
    if (std::strcmp(thing.name, argv[1]) == 0) return thing.run();
  }
  return 2;
}
