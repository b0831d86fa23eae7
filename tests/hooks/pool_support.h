// What the tests of pools share.
#pragma once

#include <string>

#include "driver/cuda_api.h"
#include "support.h"

namespace vgpu::test {

inline constexpr std::uint64_t kChunk = 32 * kMiB;  // what a pool of the simulated driver grows by at least

class PoolTest : public HooksTest {
 protected:
  static std::uint64_t call(Program &program, const std::string &line) { return program.must("call " + line); }
  static int result_of(Program &program, const std::string &line) { return program.ask("call " + line).result; }
  static std::uint64_t allocate(Program &program, std::uint64_t bytes, std::uint64_t stream = 0) {
    return call(program, "cuMemAllocAsync " + text(bytes) + " " + text(stream));
  }
  static void release(Program &program, std::uint64_t pointer, std::uint64_t stream = 0) {
    call(program, "cuMemFreeAsync " + text(pointer) + " " + text(stream));
  }
  static std::uint64_t allocate_from(Program &program, std::uint64_t pool, std::uint64_t bytes) {
    return call(program, "cuMemAllocFromPoolAsync " + text(bytes) + " 0 " + text(pool));
  }
  static std::uint64_t make_pool(Program &program, unsigned device = 0) {
    return call(program, "cuMemPoolCreate " + text(device) + " 1");
  }
  static void synchronize(Program &program) { call(program, "cuCtxSynchronize"); }
};

}  // namespace vgpu::test
