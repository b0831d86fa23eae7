// Names of results; the rows are generated from cuda.h.
#pragma once

namespace simgpu {

struct ErrorRow {
  int code;
  const char *name;
  const char *words;
};

extern const ErrorRow kErrorTable[];
extern const unsigned kErrorRows;

}  // namespace simgpu
