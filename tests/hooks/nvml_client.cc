// A process on the simulated node that does what the lines on its standard input say. Its answer to each line starts with
// the call's result; see the end for the verbs. NVML is opened when first needed, as monitors do.
#include <cuda.h>
#include <dlfcn.h>
#include <nvml.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "simgpu/nvml/newer.h"

namespace {

constexpr unsigned char kFill = 0xEE;

void *function(const char *name) {
  static void *library = [] {
    void *opened = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    auto *init = reinterpret_cast<nvmlReturn_t (*)()>(dlsym(opened, "nvmlInit_v2"));
    if (init() != NVML_SUCCESS) abort();
    return opened;
  }();
  return dlsym(library, name);
}

template <typename... Arguments>
int call(const std::string &name, Arguments... arguments) {
  auto *pointer = reinterpret_cast<nvmlReturn_t (*)(Arguments...)>(function(name.c_str()));
  return pointer != nullptr ? pointer(arguments...) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

nvmlDevice_t device(unsigned index) {
  nvmlDevice_t handle = nullptr;
  call("nvmlDeviceGetHandleByIndex_v2", index, &handle);
  return handle;
}

// Room for a list, and what was written there. 0 entries: no room at all.
struct Room {
  Room(unsigned entries, size_t stride) : stride(stride), bytes(entries * stride + 4096, kFill), none(entries == 0) {}

  void *pointer() { return none ? nullptr : bytes.data(); }
  size_t written() const {
    size_t end = bytes.size();
    while (end > 0 && bytes[end - 1] == kFill) --end;
    return end;
  }
  template <typename Entry>
  Entry entry(unsigned index) const {
    Entry value{};
    memcpy(&value, bytes.data() + index * stride, std::min(stride, sizeof value));
    return value;
  }

  size_t stride;
  std::vector<unsigned char> bytes;
  bool none;
};

// list FUNCTION DEVICE COUNT STRIDE: result, count, bytes written, pid=bytes ...
int list(std::istringstream &in, std::ostringstream &out) {
  std::string name;
  unsigned index = 0, count = 0;
  size_t stride = 0;
  in >> name >> index >> count >> stride;
  Room room(count, stride);
  const int result = call("nvmlDeviceGet" + name, device(index), &count, room.pointer());
  out << ' ' << count << ' ' << room.written();
  for (unsigned i = 0; result == NVML_SUCCESS && i < count; ++i) {
    const auto entry = room.entry<nvmlProcessInfo_v1_t>(i);
    out << ' ' << entry.pid;
    if (stride > sizeof entry.pid) out << '=' << entry.usedGpuMemory;
  }
  return result;
}

// sessions KIND DEVICE COUNT: result, count, pid ... Those of frame capture start like those of encoders.
int sessions(std::istringstream &in, std::ostringstream &out) {
  std::string kind;
  unsigned index = 0, count = 0;
  in >> kind >> index >> count;
  const size_t stride = kind == "FBC" ? sizeof(nvmlFBCSessionInfo_t) : sizeof(nvmlEncoderSessionInfo_t);
  const unsigned given = count;
  Room room(count, stride);
  const int result = call("nvmlDeviceGet" + kind + "Sessions", device(index), &count, room.pointer());
  out << ' ' << count << ' ' << room.written();
  for (unsigned i = 0; result == NVML_SUCCESS && i < std::min(count, given); ++i)
    out << ' ' << room.entry<nvmlEncoderSessionInfo_t>(i).pid;
  return result;
}

int nowhere(const std::string &name, unsigned index) {
  unsigned count = 5;
  return call("nvmlDeviceGet" + name, device(index), &count, static_cast<void *>(nullptr));
}

int details(std::istringstream &in, std::ostringstream &out) {
  unsigned index = 0, mode = 0, count = 0, version = 0;
  in >> index >> mode >> count >> version;
  std::vector<nvmlProcessDetail_v1_t> entries(count);
  nvmlProcessDetailList_v1_t list = {version == 1 ? nvmlProcessDetailList_v1 : version, mode, count,
                                     count != 0 ? entries.data() : nullptr};
  const int result = call("nvmlDeviceGetRunningProcessDetailList", device(index), &list);
  out << ' ' << list.numProcArrayEntries;
  for (unsigned i = 0; result == NVML_SUCCESS && i < list.numProcArrayEntries; ++i) {
    out << ' ' << entries[i].pid << '=' << entries[i].usedGpuMemory;
  }
  return result;
}

// utilisation DEVICE COUNT: result, count, pid=sm/memory/encoder/decoder ...
int utilisation(std::istringstream &in, std::ostringstream &out) {
  unsigned index = 0, count = 0;
  in >> index >> count;
  std::vector<nvmlProcessUtilizationSample_t> samples(count);
  const int result =
      call("nvmlDeviceGetProcessUtilization", device(index), count != 0 ? samples.data() : nullptr, &count, 0ull);
  out << ' ' << count;
  for (unsigned i = 0; result == NVML_SUCCESS && i < count; ++i) {
    const auto &s = samples[i];
    out << ' ' << s.pid << '=' << s.smUtil << '/' << s.memUtil << '/' << s.encUtil << '/' << s.decUtil;
  }
  return result;
}

int utilisation_info(std::istringstream &in, std::ostringstream &out) {
  unsigned index = 0, count = 0, version = 0;
  in >> index >> count >> version;
  std::vector<nvmlProcessUtilizationInfo_v1_t> samples(count);
  nvmlProcessesUtilizationInfo_v1_t info = {version == 1 ? nvmlProcessesUtilizationInfo_v1 : version, count, 0,
                                            count != 0 ? samples.data() : nullptr};
  const int result = call("nvmlDeviceGetProcessesUtilizationInfo", device(index), &info);
  out << ' ' << info.processSamplesCount;
  for (unsigned i = 0; result == NVML_SUCCESS && i < info.processSamplesCount; ++i) {
    out << ' ' << samples[i].pid << '=' << samples[i].smUtil << '/' << samples[i].memUtil;
  }
  return result;
}

// rates DEVICE: gpu memory; encoder; decoder; the GPU's and the memory's of the performance state; the sampled GPU
int rates(std::istringstream &in, std::ostringstream &out) {
  unsigned index = 0, encoder = 0, decoder = 0, period = 0, count = 1;
  in >> index;
  nvmlUtilization_t both{};
  nvmlGpuDynamicPstatesInfo_t states{};
  nvmlValueType_t type;
  nvmlSample_t sample{};
  int result = call("nvmlDeviceGetUtilizationRates", device(index), &both);
  result |= call("nvmlDeviceGetEncoderUtilization", device(index), &encoder, &period);
  result |= call("nvmlDeviceGetDecoderUtilization", device(index), &decoder, &period);
  result |= call("nvmlDeviceGetDynamicPstatesInfo", device(index), &states);
  result |= call("nvmlDeviceGetSamples", device(index), NVML_GPU_UTILIZATION_SAMPLES, 0ull, &type, &count, &sample);
  out << ' ' << both.gpu << ' ' << both.memory << ' ' << encoder << ' ' << decoder << ' '
      << states.utilization[0].percentage << ' ' << states.utilization[1].percentage << ' ' << sample.sampleValue.uiVal;
  return result;
}

int stats(std::istringstream &in, std::ostringstream &out) {
  unsigned index = 0, pid = 0;
  in >> index >> pid;
  nvmlAccountingStats_t found{};
  const int result = call("nvmlDeviceGetAccountingStats", device(index), pid, &found);
  out << ' ' << found.isRunning << ' ' << found.maxMemoryUsage << ' ' << found.gpuUtilization;
  return result;
}

CUresult make_context(int ordinal) {
  CUcontext context;
  const CUresult result = cuInit(0);
  return result != CUDA_SUCCESS ? result : cuCtxCreate_v2(&context, 0, ordinal);
}

// A signal every so often that interrupts whatever sleeps.
class Alarms {
 public:
  explicit Alarms(suseconds_t every_us) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    set(every_us);
  }
  ~Alarms() { set(0); }

 private:
  static void set(suseconds_t us) {
    const itimerval every = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &every, nullptr);
  }
};

// Children with a context each, which end with this process.
int crowd(std::istringstream &in, std::ostringstream &) {
  int ordinal = 0, children = 0, failures = 0;
  in >> ordinal >> children;
  int ends[2];
  if (pipe(ends) != 0) return -1;
  for (int i = 0; i < children; ++i) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char result = make_context(ordinal) == CUDA_SUCCESS ? 0 : 1;
    if (write(ends[1], &result, 1) != 1) _exit(1);
    for (;;) pause();
  }
  for (int i = 0; i < children; ++i) {
    char result = 1;
    failures += read(ends[0], &result, 1) != 1 || result != 0;
  }
  return failures;
}

int run(std::istringstream &in, std::ostringstream &out) {
  std::string verb, name;
  in >> verb;
  if (verb == "init") return cuInit(0);
  if (verb == "ctx" || verb == "alarmedctx") {
    int ordinal = 0;
    in >> ordinal;
    const Alarms alarms(verb == "alarmedctx" ? 1000 : 0);
    return make_context(ordinal);
  }
  if (verb == "alloc") {
    size_t bytes = 0;
    CUdeviceptr pointer = 0;
    in >> bytes;
    return cuMemAlloc_v2(&pointer, bytes);
  }
  if (verb == "list") return list(in, out);
  if (verb == "sessions") return sessions(in, out);
  if (verb == "nowhere") {
    unsigned index = 0;
    in >> name >> index;
    return nowhere(name, index);
  }
  if (verb == "details") return details(in, out);
  if (verb == "utilisation") return utilisation(in, out);
  if (verb == "utilisationinfo") return utilisation_info(in, out);
  if (verb == "rates") return rates(in, out);
  if (verb == "stats") return stats(in, out);
  if (verb == "crowd") return crowd(in, out);
  if (verb == "pid") {
    out << ' ' << getpid();
    return 0;
  }
  if (verb == "nvml") {
    // Whether anybody opened NVML in this process.
    out << ' ' << (dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr ? "open" : "none");
    return 0;
  }
  return -1;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::ostringstream out;
    const int result = run(in, out);
    std::cout << result << out.str() << std::endl;
  }
  return 0;
}
