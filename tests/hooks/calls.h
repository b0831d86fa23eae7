// Calls of the driver that take more than an amount: pools, physical memory, graphs, sharing, and what goes with them.
//
// hooks_client runs them by name ("call SYMBOL ARGUMENT..."); coverage_test counts a row as a tested symbol.
#pragma once

#include <span>
#include <sstream>
#include <string>

#include "cases.h"

namespace vgpu::test {

using Arguments = std::istringstream;
using Values = std::ostringstream;

struct Call {
  const char *symbol;
  int (*run)(Arguments &, Values &);
};

std::span<const Call> pool_calls();
std::span<const Call> physical_calls();
std::span<const Call> graph_calls();
std::span<const Call> launch_calls();
std::span<const Call> stream_calls();
std::span<const Call> other_calls();
const Call *find_call(const std::string &symbol);

// A kernel that takes so long: "1ms", or "some_name_1ms" for another one. Loaded once, in the context that is current.
CUfunction kernel_of(const std::string &duration);
// The same in a library, and in no context.
CUkernel library_kernel_of(const std::string &duration);

// ---- for the rows ----

template <typename T>
T next(Arguments &arguments) {
  T value{};
  arguments >> value;
  return value;
}
inline std::uint64_t number(Arguments &arguments) { return next<std::uint64_t>(arguments); }
inline CUdevice device(Arguments &arguments) { return next<int>(arguments); }
template <typename Handle>
Handle handle(Arguments &arguments) {
  return reinterpret_cast<Handle>(number(arguments));
}

// Calls with a place for the output and answers what was put there; after a failure, whatever it was left as.
template <typename Output, typename Function>
int answer(Values &values, Function function) {
  Output output;
  if constexpr (std::is_pointer_v<Output>) {
    output = reinterpret_cast<Output>(kUntouched);
  } else {
    output = static_cast<Output>(kUntouched);
  }
  const CUresult result = function(&output);
  if constexpr (std::is_pointer_v<Output>) {
    values << ' ' << reinterpret_cast<std::uint64_t>(output);
  } else {
    values << ' ' << output;
  }
  return result;
}

#define CALL(symbol, body) \
  { #symbol, []([[maybe_unused]] Arguments & in, [[maybe_unused]] Values & out) -> int body }

// Bytes as they travel from one process to another.
template <typename Bytes>
void write_hex(const Bytes &bytes, Values &values) {
  constexpr char kDigits[] = "0123456789abcdef";
  values << ' ';
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    const auto byte = reinterpret_cast<const unsigned char *>(&bytes)[i];
    values << kDigits[byte >> 4] << kDigits[byte & 15];
  }
}
template <typename Bytes>
Bytes read_hex(Arguments &arguments) {
  const auto text = next<std::string>(arguments);
  Bytes bytes{};
  for (std::size_t i = 0; i < sizeof bytes && 2 * i + 1 < text.size(); ++i) {
    reinterpret_cast<unsigned char *>(&bytes)[i] =
        static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace vgpu::test
