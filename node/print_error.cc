#include "print_error.h"

#include <cstdarg>
#include <cstdio>

#include "printable.h"

namespace vgpu::node {

void print_error(const char *format, ...) {
  char sentence[1024];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "vgpu: %s\n", printable(sentence).c_str());
}

}  // namespace vgpu::node
