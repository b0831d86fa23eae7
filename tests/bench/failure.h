// A benchmark that cannot measure says why and ends; what it built is taken down on the way.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>

namespace bench {

class Failure : public std::exception {
 public:
  __attribute__((format(printf, 2, 3))) explicit Failure(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
  }
  const char *what() const noexcept override { return text_; }

 private:
  char text_[400];
};

// For main(): the exit status of a benchmark.
template <class Body>
int run(const char *program, Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception &failure) {
    std::fprintf(stderr, "%s: %s\n", program, failure.what());
    return 1;
  }
}

}  // namespace bench
