#include "table.h"

#include <string_view>

namespace vgpu::driver {

namespace {

constexpr bool only_if_metered(std::string_view rule) { return rule == "meter" || rule == "follow"; }

}  // namespace

// The rows in the order of Symbol.
const SymbolRow kSymbolRows[kSymbols] = {
#define CUDA_HOOK(symbol, name, since, stream, family, rule) \
  {#symbol,                                                  \
   Library::cuda,                                            \
   reinterpret_cast<void *>(&::symbol),                      \
   #name,                                                    \
   since,                                                    \
   DefaultStream::stream,                                    \
   only_if_metered(#rule)},
#define NVML_HOOK(symbol, family, rule) \
  {#symbol, Library::nvml, reinterpret_cast<void *>(&::symbol), nullptr, 0, DefaultStream::legacy},
#define CUDA_CALL(symbol)
#define NVML_CALL(symbol)
#include "table.def"
#undef CUDA_HOOK
#undef NVML_HOOK
#undef CUDA_CALL
#undef NVML_CALL
#define CUDA_HOOK(...)
#define NVML_HOOK(...)
#define CUDA_CALL(symbol) {#symbol, Library::cuda, nullptr, nullptr, 0, DefaultStream::legacy},
#define NVML_CALL(symbol) {#symbol, Library::nvml, nullptr, nullptr, 0, DefaultStream::legacy},
#include "table.def"
#undef CUDA_HOOK
#undef NVML_HOOK
#undef CUDA_CALL
#undef NVML_CALL
};

}  // namespace vgpu::driver
