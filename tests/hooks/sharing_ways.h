// The ways in which processes of a job share memory.
#pragma once

#include "driver/cuda_api.h"
#include "support.h"

namespace vgpu::test {

constexpr std::uint64_t kBytes = 8 * kMiB;

// Each of these shares memory of 8 MiB, says how to free it in the one and the other, and how much there is of it.
struct SharedBytes {
  std::string free_in_maker, free_in_user;
  std::uint64_t charged = kBytes;  // in blocks, or a chunk of a pool
};

using Share = SharedBytes (*)(Program &maker, Program &user);

struct Way {
  const char *name;
  Share share;
};

template <int version>
SharedBytes share_by_ipc(Program &maker, Program &user) {
  const std::uint64_t pointer = maker.make("cuMemAlloc_v2", kBytes);
  const std::string handle = maker.ask("call cuIpcGetMemHandle " + text(pointer)).values.at(0);
  const char *open = version == 1 ? "call cuIpcOpenMemHandle " : "call cuIpcOpenMemHandle_v2 ";
  const std::uint64_t opened = user.must(open + handle);
  return {"drop cuMemFree_v2 " + text(pointer), "call cuIpcCloseMemHandle " + text(opened)};
}

inline std::uint64_t descriptor_for(Program &maker, const std::string &line, Program &user) {
  const std::uint64_t fd = maker.must(line);
  const std::uint64_t taken = user.must("call take " + text(static_cast<std::uint64_t>(maker.pid())) + " " + text(fd));
  maker.must("call close " + text(fd));
  return taken;
}

inline SharedBytes share_by_handle(Program &maker, Program &user) {
  const std::uint64_t handle = maker.must("call cuMemCreate " + text(kBytes) + " 0");
  const std::uint64_t fd = descriptor_for(maker, "call cuMemExportToShareableHandle " + text(handle), user);
  const std::uint64_t imported = user.must("call cuMemImportFromShareableHandle " + text(fd));
  const std::uint64_t address = user.must("call cuMemAddressReserve " + text(kBytes));
  user.must("call cuMemMap " + text(address) + " " + text(kBytes) + " " + text(imported));
  user.must("call cuMemRelease " + text(imported));
  user.must("call close " + text(fd));
  return {"call cuMemRelease " + text(handle), "call cuMemUnmap " + text(address) + " " + text(kBytes)};
}

inline SharedBytes share_by_external_memory(Program &maker, Program &user) {
  const std::uint64_t handle = maker.must("call cuMemCreate " + text(kBytes) + " 0");
  const std::uint64_t fd = descriptor_for(maker, "call cuMemExportToShareableHandle " + text(handle), user);
  const std::uint64_t memory = user.must("call cuImportExternalMemory " + text(fd) + " " + text(kBytes));
  const std::uint64_t buffer = user.must("call cuExternalMemoryGetMappedBuffer " + text(memory) + " " + text(kBytes));
  user.must("call cuDestroyExternalMemory " + text(memory));
  return {"call cuMemRelease " + text(handle), "drop cuMemFree_v2 " + text(buffer)};
}

inline SharedBytes share_by_pool(Program &maker, Program &user) {
  const std::uint64_t pool = maker.must("call cuMemPoolCreate 0 1");
  const std::uint64_t fd = descriptor_for(maker, "call cuMemPoolExportToShareableHandle " + text(pool), user);
  const std::uint64_t imported = user.must("call cuMemPoolImportFromShareableHandle " + text(fd));
  user.must("call close " + text(fd));
  const std::uint64_t pointer = maker.must("call cuMemAllocFromPoolAsync " + text(kBytes) + " 0 " + text(pool));
  const std::string data = maker.ask("call cuMemPoolExportPointer " + text(pointer)).values.at(0);
  const std::uint64_t opened = user.must("call cuMemPoolImportPointer " + text(imported) + " " + data);
  // Nothing can be allocated from it there.
  EXPECT_EQ(user.ask("call cuMemAllocFromPoolAsync 2097152 0 " + text(imported)).result, CUDA_ERROR_INVALID_VALUE);
  return {"drop cuMemFree_v2 " + text(pointer), "call cuMemFreeAsync " + text(opened) + " 0", 32 * kMiB};
}

inline const Way kFollowedWays[] = {
    {"Ipc", share_by_ipc<2>}, {"OldIpc", share_by_ipc<1>}, {"Handle", share_by_handle}, {"Pool", share_by_pool}};
inline const Way kWays[] = {{"Ipc", share_by_ipc<2>},
                            {"OldIpc", share_by_ipc<1>},
                            {"Handle", share_by_handle},
                            {"ExternalMemory", share_by_external_memory},
                            {"Pool", share_by_pool}};

}  // namespace vgpu::test
