// hooks_client: does what the lines on its standard input say, and answers each with a result and values.
// hooks_client nulls: see null_calls.h.
// hooks_client stress RANK SEED: a rank of the stress test, see stress_rank.h.
//
//   init                        cuInit
//   make SYMBOL AMOUNT          answers the handle, also after a failure: then what the output was left as
//   spoil SYMBOL AMOUNT         the same without a place for the handle
//   drop SYMBOL VALUE
//   call SYMBOL ARGUMENT...     see the rows in *_calls.cc
//   thread COMMAND...           the same in another thread, in the same context
//   touch POINTER BYTES         writes to it, which brings managed memory to the device
//   current CONTEXT             makes a context current; 0: none
//   mipmap WIDTH HEIGHT LEVELS  of one float each
//   code LIBRARY                brings a library's code to the device, as its first use does
//   info | info32               cuMemGetInfo: free, total
//   total DEVICE | total32 DEVICE
//   uuid DEVICE
//   nvml init | nvml INDEX | nvml2 INDEX      UUID, total, free, used (and reserved)
//   bar1 INDEX                                UUID, total, free, used
//   flood COUNT                 live allocations; nanoseconds of a pair with few and with that many of them
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "calls.h"
#include "null_calls.h"
#include "stress_rank.h"

namespace vgpu::test {

namespace {

int run(Arguments &arguments, Values &values);

int make(Arguments &arguments, Values &values) {
  const Maker *maker = find_maker(next<std::string>(arguments));
  std::uint64_t handle = 0;
  const CUresult result = maker->make(&handle, number(arguments));
  values << ' ' << handle;
  return result;
}

int spoil(Arguments &arguments, Values &) {
  const Maker *maker = find_maker(next<std::string>(arguments));
  return maker->make(nullptr, number(arguments));
}

int drop(Arguments &arguments, Values &) {
  const Releaser *releaser = find_releaser(next<std::string>(arguments));
  return releaser->release(number(arguments));
}

int call(Arguments &arguments, Values &values) {
  const auto symbol = next<std::string>(arguments);
  const Call *row = find_call(symbol);
  if (row == nullptr) std::fprintf(stderr, "no such call: %s\n", symbol.c_str());
  return row != nullptr ? row->run(arguments, values) : -1;
}

int in_thread(Arguments &arguments, Values &values) {
  CUcontext context = nullptr;
  DRIVER(cuCtxGetCurrent)(&context);
  int result = -1;
  std::thread([&] {
    DRIVER(cuCtxSetCurrent)(context);
    result = run(arguments, values);
  }).join();
  return result;
}

int touch(Arguments &arguments, Values &) {
  const std::uint64_t pointer = number(arguments);
  return DRIVER(cuMemsetD8_v2)(pointer, 1, number(arguments));
}

int make_current(Arguments &arguments, Values &) {
  return DRIVER(cuCtxSetCurrent)(reinterpret_cast<CUcontext>(number(arguments)));
}

int mipmap(Arguments &arguments, Values &values) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  shape.Width = number(arguments);
  shape.Height = number(arguments);
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  CUmipmappedArray array = nullptr;
  const CUresult result = DRIVER(cuMipmappedArrayCreate)(&array, &shape, next<unsigned>(arguments));
  values << ' ' << reinterpret_cast<std::uint64_t>(array);
  return result;
}

int load_code(Arguments &arguments, Values &) {
  CUmodule module = nullptr;
  return DRIVER(cuLibraryGetModule)(&module, reinterpret_cast<CUlibrary>(number(arguments)));
}

template <typename Size, typename Function>
int memory_info(Function *function, Values &values) {
  Size free = 0, total = 0;
  const CUresult result = function(&free, &total);
  values << ' ' << free << ' ' << total;
  return result;
}

template <typename Size, typename Function>
int total_memory(Function *function, Arguments &arguments, Values &values) {
  Size bytes = 0;
  const CUresult result = function(&bytes, device(arguments));
  values << ' ' << bytes;
  return result;
}

int uuid(Arguments &arguments, Values &values) {
  CUuuid bytes = {};
  const CUresult result = DRIVER(cuDeviceGetUuid_v2)(&bytes, device(arguments));
  values << " GPU-";
  for (int i = 0; i < 16; ++i) {
    char text[8];
    std::snprintf(text, sizeof text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                  static_cast<unsigned char>(bytes.bytes[i]));
    values << text;
  }
  return result;
}

int nvml_device(Arguments &arguments, nvmlDevice_t *device, Values &values) {
  const auto text = next<std::string>(arguments);
  if (text == "init") return DRIVER(nvmlInit_v2)();
  char name[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
  int result = DRIVER(nvmlDeviceGetHandleByIndex_v2)(static_cast<unsigned>(std::stoul(text)), device);
  if (result == NVML_SUCCESS) result = DRIVER(nvmlDeviceGetUUID)(*device, name, sizeof name);
  values << ' ' << name;
  return result;
}

int nvml(Arguments &arguments, Values &values) {
  nvmlDevice_t gpu = nullptr;
  int result = nvml_device(arguments, &gpu, values);
  if (result != NVML_SUCCESS || gpu == nullptr) return result;
  nvmlMemory_t memory = {};
  result = DRIVER(nvmlDeviceGetMemoryInfo)(gpu, &memory);
  values << ' ' << memory.total << ' ' << memory.free << ' ' << memory.used;
  return result;
}

int nvml2(Arguments &arguments, Values &values) {
  nvmlDevice_t gpu = nullptr;
  int result = nvml_device(arguments, &gpu, values);
  if (result != NVML_SUCCESS || gpu == nullptr) return result;
  nvmlMemory_v2_t memory = {};
  memory.version = nvmlMemory_v2;
  result = DRIVER(nvmlDeviceGetMemoryInfo_v2)(gpu, &memory);
  values << ' ' << memory.total << ' ' << memory.free << ' ' << memory.used << ' ' << memory.reserved;
  return result;
}

int bar1(Arguments &arguments, Values &values) {
  nvmlDevice_t gpu = nullptr;
  int result = nvml_device(arguments, &gpu, values);
  if (result != NVML_SUCCESS || gpu == nullptr) return result;
  nvmlBAR1Memory_t memory = {};
  result = DRIVER(nvmlDeviceGetBAR1MemoryInfo)(gpu, &memory);
  values << ' ' << memory.bar1Total << ' ' << memory.bar1Free << ' ' << memory.bar1Used;
  return result;
}

// The best of several rounds: what others do on the machine only ever adds.
double pair_ns() {
  constexpr int kRounds = 20, kPairs = 500;
  double best = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < kPairs; ++i) {
      CUdeviceptr pointer = 0;
      if (DRIVER(cuMemAlloc_v2)(&pointer, 512) != CUDA_SUCCESS) return -1;
      DRIVER(cuMemFree_v2)(pointer);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double ns =
        static_cast<double>(end.tv_sec - start.tv_sec) * 1e9 + static_cast<double>(end.tv_nsec - start.tv_nsec);
    best = std::min(best, ns / kPairs);
  }
  return best;
}

int flood(Arguments &arguments, Values &values) {
  std::vector<CUdeviceptr> all(number(arguments));
  std::size_t made = 0;
  double few = 0;
  CUresult result = CUDA_SUCCESS;
  for (CUdeviceptr &pointer : all) {
    if (made == 10) few = pair_ns();
    result = DRIVER(cuMemAlloc_v2)(&pointer, 512);
    if (result != CUDA_SUCCESS) break;
    ++made;
  }
  values << ' ' << made << ' ' << few << ' ' << pair_ns();
  for (std::size_t i = 0; i < made && result == CUDA_SUCCESS; ++i) {
    // Not in the order in which they were made.
    result = DRIVER(cuMemFree_v2)(all[i % 2 == 0 ? i / 2 : made - 1 - i / 2]);
  }
  return result;
}

int run(Arguments &arguments, Values &values) {
  using Command = std::function<int(Arguments &, Values &)>;
  static const std::map<std::string, Command> commands = {
      {"init", [](Arguments &, Values &) { return DRIVER(cuInit)(0); }},
      {"make", make},
      {"spoil", spoil},
      {"drop", drop},
      {"call", call},
      {"thread", in_thread},
      {"touch", touch},
      {"current", make_current},
      {"mipmap", mipmap},
      {"code", load_code},
      {"info", [](Arguments &, Values &v) { return memory_info<std::size_t>(DRIVER(cuMemGetInfo_v2), v); }},
      {"info32", [](Arguments &, Values &v) { return memory_info<unsigned>(DRIVER(cuMemGetInfo), v); }},
      {"total", [](Arguments &a, Values &v) { return total_memory<std::size_t>(DRIVER(cuDeviceTotalMem_v2), a, v); }},
      {"total32", [](Arguments &a, Values &v) { return total_memory<unsigned>(DRIVER(cuDeviceTotalMem), a, v); }},
      {"uuid", uuid},
      {"nvml", nvml},
      {"nvml2", nvml2},
      {"bar1", bar1},
      {"flood", flood},
  };
  return commands.at(next<std::string>(arguments))(arguments, values);
}

}  // namespace
}  // namespace vgpu::test

int main(int argc, char **argv) {
  if (argc == 2 && std::strcmp(argv[1], "nulls") == 0) return vgpu::test::run_null_calls();
  if (argc == 4 && std::strcmp(argv[1], "stress") == 0) {
    return vgpu::test::run_stress_rank(static_cast<unsigned>(std::stoul(argv[2])),
                                       static_cast<unsigned>(std::stoul(argv[3])));
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream arguments(line);
    std::ostringstream values;
    const int result = vgpu::test::run(arguments, values);
    std::cout << result << values.str() << std::endl;
  }
  return 0;
}
