// A limiter of the kind that others use, for the benchmark to compare with, written from what they publish about theirs.
//
// A preload: every launch takes as many tokens as it has blocks (a graph one), and waits while there are none. A thread
// looks every 120 ms at how busy NVML says the job's processes were, and gives out more tokens, or fewer, in proportion
// to what is missing to the share. Every process has tokens of its own.
//
//   PEER_PERCENT   the share
//   PEER_JOB       a file in which the job's processes find each other
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nvml.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr auto kTick = std::chrono::milliseconds(120), kNap = std::chrono::milliseconds(10);
constexpr long kPoolFactor = 32;       // the pool is so many times what the device can run at once
constexpr long kStepsPerPoint = 1024;  // a point of difference moves what is given out by this part of the pool
constexpr unsigned kMostProcesses = 64;

std::atomic<long> tokens{0};

struct Job {
  std::atomic<unsigned> pids[kMostProcesses];

  void join() {
    unsigned none = 0;
    for (std::atomic<unsigned> &pid : pids) {
      if (pid.compare_exchange_strong(none, static_cast<unsigned>(getpid()))) return;
      none = 0;
    }
  }
  bool has(unsigned wanted) const {
    return std::any_of(std::begin(pids), std::end(pids),
                       [&](const std::atomic<unsigned> &pid) { return pid.load() == wanted; });
  }
};

[[noreturn]] void give_up(const char *what) {
  std::fprintf(stderr, "peer: %s\n", what);
  _exit(1);
}

Job *join_job() {
  const char *path = std::getenv("PEER_JOB");
  const int file = path != nullptr ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file < 0 || ftruncate(file, sizeof(Job)) != 0) give_up("PEER_JOB is not a file that can be written");
  void *words = mmap(nullptr, sizeof(Job), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (words == MAP_FAILED) give_up("PEER_JOB cannot be mapped");
  Job *job = static_cast<Job *>(words);
  job->join();
  return job;
}

// Percent. Nothing is what nobody says anything about.
long used_by(const Job &job, nvmlDevice_t device) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(now).count() - 1'000'000;
  unsigned count = 0;
  nvmlDeviceGetProcessUtilization(device, nullptr, &count, static_cast<unsigned long long>(since));
  std::vector<nvmlProcessUtilizationSample_t> samples(count);
  if (count == 0 || nvmlDeviceGetProcessUtilization(device, samples.data(), &count,
                                                    static_cast<unsigned long long>(since)) != NVML_SUCCESS) {
    return 0;
  }
  long used = 0;
  for (unsigned i = 0; i < count; ++i) used += job.has(samples[i].pid) ? static_cast<long>(samples[i].smUtil) : 0;
  return used;
}

[[noreturn]] void refill(const Job &job, nvmlDevice_t device, long percent, long pool) {
  long given = 0;
  for (;;) {
    std::this_thread::sleep_for(kTick);
    given = std::clamp(given + (percent - used_by(job, device)) * pool / kStepsPerPoint, 0L, pool);
    long before = tokens.load();
    while (!tokens.compare_exchange_weak(before, std::min(before + given, pool))) continue;
  }
}

void start() {
  const char *percent = std::getenv("PEER_PERCENT");
  CUdevice ordinal;
  CUuuid uuid;
  int sms = 0, threads = 0;
  if (percent == nullptr || cuCtxGetDevice(&ordinal) != CUDA_SUCCESS ||
      cuDeviceGetUuid(&uuid, ordinal) != CUDA_SUCCESS ||
      cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal) != CUDA_SUCCESS ||
      cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal) != CUDA_SUCCESS) {
    give_up("no percentage, or no device");
  }
  char name[64];
  int length = std::snprintf(name, sizeof name, "GPU");
  for (unsigned i = 0; i < sizeof uuid.bytes; ++i) {
    const bool dash = i == 0 || (i >= 4 && i <= 10 && i % 2 == 0);
    length += std::snprintf(name + length, sizeof name - static_cast<std::size_t>(length), "%s%02x", dash ? "-" : "",
                            static_cast<unsigned char>(uuid.bytes[i]));
  }
  nvmlDevice_t device;
  if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByUUID(name, &device) != NVML_SUCCESS) give_up("no NVML");
  std::thread(refill, std::cref(*join_job()), device, std::atol(percent), kPoolFactor * sms * threads).detach();
}

void take(long blocks) {
  static std::once_flag once;
  std::call_once(once, start);
  while (tokens.load() <= 0) std::this_thread::sleep_for(kNap);
  tokens -= blocks;
}

template <class Function>
Function *real(Function *, const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

}  // namespace

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                                unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                                void **extra) {
  static const auto next = real(cuLaunchKernel, "cuLaunchKernel");
  take(static_cast<long>(x) * y * z);
  return next(function, x, y, z, block_x, block_y, block_z, shared, stream, parameters, extra);
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  static const auto next = real(cuGraphLaunch, "cuGraphLaunch");
  take(1);
  return next(graph, stream);
}
