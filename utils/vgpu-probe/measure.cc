#include "measure.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <vector>

#include "cuda_calls.h"
#include "node/read_until.h"
#include "nvml_library.h"

extern char **environ;

namespace vgpu::probe {

namespace {

constexpr unsigned kEvery_ms = 50;
constexpr unsigned kLongest_ms = 5'000;
// So long a process may be missing in NVML's list before the whole GPU's figures are taken in its place.
constexpr unsigned kLate_ms = 1'000;
constexpr int kEqual = 3;  // readings, before they are believed

// Who is on the GPU, asked as often as necessary.
class Gpu {
 public:
  explicit Gpu(const nvml::Calls &calls) : calls_(calls) {}

  Error find(const std::string &uuid) {
    uuid_ = uuid;
    if (calls_.device_by_uuid == nullptr || calls_.compute_processes == nullptr ||
        calls_.graphics_processes == nullptr || calls_.compute_mode == nullptr) {
      return make_error(Fault::foreign, "this NVML cannot say who uses a GPU; update the driver");
    }
    if (const nvml::Result result = calls_.device_by_uuid(uuid.c_str(), &device_); result != nvml::kSuccess) {
      return make_error(Fault::not_found, "NVML does not find GPU %s: %s", uuid.c_str(), calls_.error_string(result));
    }
    // The compute mode is the whole GPU's.
    gpu_ = device_;
    if (uuid.rfind("MIG-", 0) == 0 && calls_.gpu_of_mig_device != nullptr) calls_.gpu_of_mig_device(device_, &gpu_);
    return {};
  }

  // Nobody is there but ourselves. `own`: what NVML says we have, nothing while it does not say.
  Error check_alone(std::optional<std::uint64_t> *own) const {
    own->reset();
    int mode = -1;
    if (calls_.compute_mode(gpu_, &mode) != nvml::kSuccess) return cannot_tell("its compute mode");
    if (mode != nvml::kComputeModeDefault) {
      return make_error(Fault::invalid, "GPU %s: its compute mode is not the default one, so no context is made there",
                        uuid_.c_str());
    }
    std::vector<nvml::Process> found;
    if (!list_processes(calls_.graphics_processes, device_, &found)) return cannot_tell("its processes");
    if (!found.empty()) return in_use(found[0]);
    if (!list_processes(calls_.compute_processes, device_, &found)) return cannot_tell("its processes");
    for (const nvml::Process &process : found) {
      if (!may_be_us(process) || found.size() > 1) return in_use(process);
      if (process.used_memory != 0 && process.used_memory != nvml::kNoValue) *own = process.used_memory;
    }
    return {};
  }
  Error check_empty() const {
    std::vector<nvml::Process> found;
    std::optional<std::uint64_t> none;
    if (Error error = check_alone(&none)) return error;
    if (!list_processes(calls_.compute_processes, device_, &found)) return cannot_tell("its processes");
    return found.empty() ? Error() : in_use(found[0]);
  }

  Error used(std::uint64_t *bytes) const {
    nvml::Memory memory = {};
    if (calls_.memory_info(device_, &memory) != nvml::kSuccess) return cannot_tell("its memory");
    *bytes = memory.used;
    return {};
  }

 private:
  Error cannot_tell(const char *what) const {
    return make_error(Fault::system, "GPU %s: NVML cannot tell %s, so no context is measured there", uuid_.c_str(),
                      what);
  }
  Error in_use(const nvml::Process &process) const {
    return make_error(Fault::exists, "GPU %s: process %u uses it, so no context is measured there now", uuid_.c_str(),
                      process.pid);
  }
  // In a PID namespace NVML may call us by another number.
  static bool may_be_us(const nvml::Process &process) {
    constexpr char kOfTheMachine[] = "pid:[4026531836]";  // PROC_PID_INIT_INO
    if (static_cast<pid_t>(process.pid) == getpid()) return true;
    char name[sizeof kOfTheMachine] = "";
    const ssize_t length = readlink("/proc/self/ns/pid", name, sizeof name - 1);
    return length > 0 && std::strcmp(name, kOfTheMachine) != 0;
  }

  const nvml::Calls &calls_;
  std::string uuid_;
  nvml::Device device_ = nullptr;
  nvml::Device gpu_ = nullptr;
};

// The driver is to meet nothing but this GPU, and no settings of the caller's that make contexts larger.
void set_environment(const std::string &uuid, const std::string &empty_directory) {
  std::vector<std::string> settings;
  for (char **entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "CUDA_", 5) == 0) settings.emplace_back(*entry, std::strcspn(*entry, "="));
  }
  for (const std::string &name : settings) unsetenv(name.c_str());
  setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
  setenv("CUDA_MPS_PIPE_DIRECTORY", empty_directory.c_str(), 1);
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
}

template <typename Function>
bool find(void *library, const char *name, Function *function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The one beside NVML, where somebody said where that is.
void *open_cuda(const std::string &nvml_library) {
  const std::size_t slash = nvml_library.rfind('/');
  void *handle = nullptr;
  if (slash != std::string::npos) {
    handle = dlopen((nvml_library.substr(0, slash + 1) + "libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return handle != nullptr ? handle : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

Error load_cuda(const std::string &nvml_library, cuda::Calls *calls) {
  void *handle = open_cuda(nvml_library);
  if (handle == nullptr) {
    return make_error(Fault::not_found, "CUDA cannot be loaded: %s; install the NVIDIA driver on this node", dlerror());
  }
  if (!find(handle, "cuInit", &calls->init) || !find(handle, "cuDeviceGetCount", &calls->device_count) ||
      !find(handle, "cuDeviceGet", &calls->device_get) || !find(handle, "cuDeviceTotalMem_v2", &calls->total_memory) ||
      !find(handle, "cuDevicePrimaryCtxRetain", &calls->retain_primary) ||
      !find(handle, "cuCtxSetCurrent", &calls->set_current) || !find(handle, "cuCtxSynchronize", &calls->synchronize) ||
      !find(handle, "cuGetErrorName", &calls->error_name)) {
    return make_error(Fault::foreign, "libcuda.so.1 is not the CUDA driver; update the driver");
  }
  find(handle, "cuMemGetAllocationGranularity", &calls->granularity);
  return {};
}

Error make_context(const cuda::Calls &calls, const std::string &uuid, node::KnownContext *figure) {
  const auto failed = [&](const char *call, cuda::Result result) {
    const char *name = nullptr;
    if (calls.error_name(result, &name) != cuda::kSuccess || name == nullptr) name = "an unknown error";
    return make_error(Fault::system, "GPU %s: %s: %s; see what nvidia-smi says on this node", uuid.c_str(), call, name);
  };
  if (const cuda::Result result = calls.init(0); result != cuda::kSuccess) return failed("cuInit", result);
  int count = 0;
  if (const cuda::Result result = calls.device_count(&count); result != cuda::kSuccess || count != 1) {
    return make_error(Fault::system, "GPU %s: CUDA does not see it; see what nvidia-smi says on this node",
                      uuid.c_str());
  }
  cuda::Device device = 0;
  if (const cuda::Result result = calls.device_get(&device, 0); result != cuda::kSuccess)
    return failed("cuDeviceGet", result);
  cuda::Context context = nullptr;
  if (const cuda::Result result = calls.retain_primary(&context, device); result != cuda::kSuccess)
    return failed("cuDevicePrimaryCtxRetain", result);
  if (const cuda::Result result = calls.set_current(context); result != cuda::kSuccess)
    return failed("cuCtxSetCurrent", result);
  if (const cuda::Result result = calls.synchronize(); result != cuda::kSuccess)
    return failed("cuCtxSynchronize", result);

  std::size_t bytes = 0;
  if (calls.total_memory(&bytes, device) == cuda::kSuccess) figure->usable_bytes = bytes;
  cuda::AllocationProperties properties = {};
  properties.type = cuda::kPinned;
  properties.location_type = cuda::kOnDevice;
  properties.location_id = device;
  if (calls.granularity != nullptr && calls.granularity(&bytes, &properties, cuda::kMinimum) == cuda::kSuccess) {
    figure->block_bytes = bytes;
  }
  return {};
}

// Until it no longer changes. `before`: what the GPU held without us.
Error wait_for_figure(const Gpu &gpu, const std::string &uuid, std::uint64_t before, std::uint64_t *bytes) {
  std::uint64_t last = 0;
  int equal = 0;
  for (unsigned waited = 0; waited < kLongest_ms; waited += kEvery_ms) {
    std::optional<std::uint64_t> own;
    if (Error error = gpu.check_alone(&own)) return error;
    std::uint64_t now = own.value_or(0);
    if (!own && waited >= kLate_ms) {
      std::uint64_t all = 0;
      if (Error error = gpu.used(&all)) return error;
      now = all > before ? all - before : 0;
    }
    equal = now != 0 && now == last ? equal + 1 : 1;
    last = now;
    if (now != 0 && equal == kEqual) {
      *bytes = now;
      return {};
    }
    usleep(kEvery_ms * 1000);
  }
  return make_error(Fault::timeout, "GPU %s: NVML shows no steady figure for a context", uuid.c_str());
}

}  // namespace

Error measure_context(const std::string &nvml_library, const std::string &uuid, const std::string &empty_directory,
                      node::KnownContext *figure) {
  set_environment(uuid, empty_directory);
  nvml::Calls calls = {};
  if (Error error = start_nvml(nvml_library, &calls)) return error;
  node::KnownContext found;
  found.uuid = uuid;
  found.driver = driver_version(calls);
  if (found.driver.empty()) {
    return make_error(Fault::system, "NVML does not say which driver this is, so nothing is measured");
  }
  Gpu gpu(calls);
  if (Error error = gpu.find(uuid)) return error;
  if (Error error = gpu.check_empty()) return error;
  std::uint64_t before = 0;
  if (Error error = gpu.used(&before)) return error;
  cuda::Calls driver = {};
  if (Error error = load_cuda(nvml_library, &driver)) return error;
  if (Error error = make_context(driver, uuid, &found)) return error;
  if (Error error = wait_for_figure(gpu, uuid, before, &found.bytes)) return error;
  found.measured = std::time(nullptr);
  *figure = std::move(found);
  return {};
}

}  // namespace vgpu::probe
