// Every call that takes or gives back device memory, by the exact name it is exported under.
//
// Tests go through these rows, so a row is a tested symbol; coverage_test compares them with the library's own table.
// This part runs inside the programs under test and finds the driver as programs do: dlopen, then dlsym.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "driver/cuda_api.h"

namespace vgpu::test {

enum class Family : std::uint8_t {
  allocation,
  context,
  module,
  attachment,  // one more use of the current context
};

// What outputs hold before a call. Fits the 32-bit ones.
inline constexpr std::uint64_t kUntouched = 0x5a5a5a5a;

// `amount` is the bytes of an allocation (a multiple of 2 MiB), the ordinal of a context's device, or the bytes of a
// module's variables. Without a `handle` the driver gets no place to put its answer, and says that this is wrong.
struct Maker {
  const char *symbol;
  Family family;
  CUresult (*make)(std::uint64_t *handle, std::uint64_t amount);
  const char *release;
};

// `value` is what was made; for primary contexts, the ordinal of their device.
struct Releaser {
  const char *symbol;
  Family family;
  CUresult (*release)(std::uint64_t value);
};

std::span<const Maker> makers();
std::span<const Releaser> releasers();
// Those of one family; not the graphics libraries' contexts, which the simulated driver does not have.
std::vector<Maker> makers_of(Family family);
bool is_simulated(const Maker &maker);
bool is_primary(const std::string &symbol);
const Maker *find_maker(const std::string &symbol);
const Releaser *find_releaser(const std::string &symbol);

// The driver's function as this program gets to know it. Ends the program if there is none.
void *driver_symbol(const char *name);
#define DRIVER(symbol)                                                                                        \
  ([] {                                                                                                       \
    static const auto function = reinterpret_cast<decltype(&::symbol)>(::vgpu::test::driver_symbol(#symbol)); \
    return function;                                                                                          \
  }())

// PTX with a kernel `nothing` and a variable of this many bytes.
std::string module_image(std::uint64_t variable_bytes);

}  // namespace vgpu::test
