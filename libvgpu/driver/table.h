// How calls reach us, and how ours reach the driver and NVML. How symbols are looked up and handed out may be changed in
// this folder alone; what a hook does is in hooks, and a new one needs its row in table.def and its function there.
//
// This header is the table of hooks as numbers and rows. Everything comes from table.def.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda_api.h"

namespace vgpu::driver {

enum class Library : std::uint8_t { cuda, nvml };
enum class DefaultStream : std::uint8_t { legacy, per_thread };

// What a stream of 0 stands for in the calls that end in _ptsz.
inline CUstream per_thread(CUstream stream) { return stream != nullptr ? stream : CU_STREAM_PER_THREAD; }

// Everything the driver and NVML are asked for by us: first what is hooked, then what is only called.
enum class Symbol : std::uint8_t {
#define CUDA_HOOK(symbol, ...) symbol,
#define NVML_HOOK(symbol, ...) symbol,
#define CUDA_CALL(symbol)
#define NVML_CALL(symbol)
#include "table.def"
#undef CUDA_CALL
#undef NVML_CALL
#undef CUDA_HOOK
#undef NVML_HOOK
#define CUDA_HOOK(...)
#define NVML_HOOK(...)
#define CUDA_CALL(symbol) symbol,
#define NVML_CALL(symbol) symbol,
#include "table.def"
#undef CUDA_CALL
#undef NVML_CALL
#undef CUDA_HOOK
#undef NVML_HOOK
  end
};

struct SymbolRow {
  const char *symbol;
  Library library;
  void *hook;        // null: not hooked
  const char *name;  // null: cuGetProcAddress does not know it
  int since;
  DefaultStream stream;
  bool metered = false;  // hooked only where launches are metered
};

inline constexpr unsigned kSymbols = static_cast<unsigned>(Symbol::end);
extern const SymbolRow kSymbolRows[kSymbols];

// What our hooks stand in front of. Null: not looked up yet, or not there. Written by resolve.cc, each once.
extern std::atomic<void *> real_pointers[kSymbols];
// Looks up what is still missing of a library that is loaded. Null: it does not have this one.
void *find_real(Symbol symbol);

inline void *real_pointer(Symbol symbol) {
  // Relaxed: code was there before its address was known.
  void *pointer = real_pointers[static_cast<unsigned>(symbol)].load(std::memory_order_relaxed);
  return pointer != nullptr ? pointer : find_real(symbol);
}

// What a program gets that was linked with a newer stub than the driver at hand and calls what that driver lacks.
template <typename Result>
inline constexpr Result kAbsent{};
template <>
inline constexpr CUresult kAbsent<CUresult> = CUDA_ERROR_NOT_FOUND;
template <>
inline constexpr nvmlReturn_t kAbsent<nvmlReturn_t> = NVML_ERROR_FUNCTION_NOT_FOUND;

template <typename Function>
struct Real;
template <typename Result, typename... Parameters>
struct Real<Result (*)(Parameters...)> {
  Symbol symbol;

  Result operator()(Parameters... parameters) const {
    auto *real = reinterpret_cast<Result (*)(Parameters...)>(real_pointer(symbol));
    return real != nullptr ? real(parameters...) : kAbsent<Result>;
  }
};

// REAL(cuMemAlloc_v2)(pointer, bytes) calls the driver's own.
#define REAL(symbol) \
  ::vgpu::driver::Real<decltype(&::symbol)> { ::vgpu::driver::Symbol::symbol }

}  // namespace vgpu::driver
