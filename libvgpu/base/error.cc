#include "error.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace vgpu {

Error make_error(Fault fault, const char *format, ...) {
  Error error;
  error.fault = fault;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error.text, sizeof error.text, format, arguments);
  va_end(arguments);
  return error;
}

Error system_error(const char *format, ...) {
  const int reason = errno;
  Error error;
  error.fault = Fault::system;
  va_list arguments;
  va_start(arguments, format);
  int length = std::vsnprintf(error.text, sizeof error.text, format, arguments);
  va_end(arguments);
  if (length < 0) length = 0;
  if (static_cast<unsigned>(length) < sizeof error.text) {
    // strerror_r, not %m: the text must not depend on what vsnprintf did to errno.
    char buffer[64];
    std::snprintf(error.text + length, sizeof error.text - static_cast<unsigned>(length), ": %s",
                  strerror_r(reason, buffer, sizeof buffer));
  }
  return error;
}

}  // namespace vgpu
