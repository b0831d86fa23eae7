// LD_PRELOAD as the user has it, with our library in it exactly once, or not at all.
#pragma once

#include <string>
#include <string_view>

namespace vgpu::node {

inline std::string without_library(std::string_view preload, std::string_view library) {
  constexpr std::string_view kSeparators = ": ";  // ld.so takes both
  std::string rest;
  while (!preload.empty()) {
    const std::size_t end = preload.find_first_of(kSeparators);
    const std::string_view entry = preload.substr(0, end);
    if (!entry.empty() && entry != library) rest.append(rest.empty() ? "" : ":").append(entry);
    preload.remove_prefix(end == std::string_view::npos ? preload.size() : end + 1);
  }
  return rest;
}

// The library comes first, so that its hooks win; everything else keeps its order.
inline std::string with_library(std::string_view preload, std::string_view library) {
  const std::string rest = without_library(preload, library);
  return std::string(library).append(rest.empty() ? "" : ":").append(rest);
}

}  // namespace vgpu::node
