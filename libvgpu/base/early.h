// Text for code that may run before anything else does.
//
// A sanitizer's runtime replaces libc's string functions and asks dlsym, that is us, for the real ones. Until we have
// answered, calling one is calling nothing: what answers, and what that needs, uses these instead.
#pragma once

#include <cstddef>

namespace vgpu {

inline bool same_text(const char *a, const char *b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

inline bool starts_with(const char *text, const char *prefix) {
  while (*prefix != '\0' && *text == *prefix) ++text, ++prefix;
  return *prefix == '\0';
}

// Cuts what is too long. `to` was all zeroes.
template <std::size_t Size>
inline void copy_text(char (&to)[Size], const char *from) {
  for (std::size_t i = 0; i < Size - 1 && from[i] != '\0'; ++i) to[i] = from[i];
}

}  // namespace vgpu
