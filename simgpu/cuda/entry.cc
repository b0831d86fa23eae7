// cuGetProcAddress, error names and the common part of all stubs.
#include <cstring>
#include <string>
#include <unordered_map>

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/error_table.h"
#include "simgpu/cuda/level.h"
#include "simgpu/cuda/proc_table.h"
#include "simgpu/cuda/stub.h"

namespace simgpu {

int not_supported(const char *name) {
  log_line("%s: not simulated", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

namespace {

struct Rows {
  unsigned first, last;  // of the same name: they are neighbours in the table
};

const std::unordered_map<std::string, Rows> &rows_by_name() {
  static const auto *index = [] {
    auto *map = new std::unordered_map<std::string, Rows>;
    for (unsigned i = 0; i < kProcRows; i++) {
      auto [it, fresh] = map->try_emplace(kProcTable[i].name, Rows{i, i});
      if (!fresh) it->second.last = i;
    }
    return map;
  }();
  return *index;
}

bool in_this_driver(const ProcRow &row) {
  return kDriverVersion > 12020 || (row.in_535 && row.version <= kDriverVersion);
}

// The newest function that bears the name and is no newer than asked for. `known` says whether the name exists at all.
void (*look_up(const char *name, int version, cuuint64_t flags, bool *known))(void) {
  auto it = rows_by_name().find(name);
  const ProcRow *plain = nullptr;
  const ProcRow *thread = nullptr;
  *known = false;
  if (it == rows_by_name().end()) return nullptr;
  for (unsigned i = it->second.first; i <= it->second.last; i++) {
    const ProcRow &row = kProcTable[i];
    if (!in_this_driver(row)) continue;
    *known = true;
    if (row.version > version) continue;
    const ProcRow *&best = row.per_thread ? thread : plain;
    if (best == nullptr || best->version <= row.version) best = &row;
  }
  bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const ProcRow *chosen = per_thread && thread != nullptr ? thread : plain;
  return chosen != nullptr ? chosen->function : nullptr;
}

const ErrorRow *find_error(CUresult error) {
  for (unsigned i = 0; i < kErrorRows; i++)
    if (kErrorTable[i].code == static_cast<int>(error)) return &kErrorTable[i];
  return nullptr;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
    return CUDA_ERROR_INVALID_VALUE;
  bool known;
  auto function = look_up(symbol, version, flags, &known);
  *pfn = reinterpret_cast<void *>(function);
  if (status != nullptr)
    *status = function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known             ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

// The first version reports a missing function as an error and leaves the pointer as it was.
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
    return CUDA_ERROR_INVALID_VALUE;
  bool known;
  auto function = look_up(symbol, version, flags, &known);
  if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
  *pfn = reinterpret_cast<void *>(function);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorRow *row = find_error(error);
  *text = row != nullptr ? row->name : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorRow *row = find_error(error);
  *text = row != nullptr ? row->words : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
