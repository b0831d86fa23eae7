// The table behind cuGetProcAddress; its rows are generated from the toolkit's typedefs.
#pragma once

namespace simgpu {

struct ProcRow {
  const char *name;
  int version;      // of CUDA, when this function came to bear the name
  bool per_thread;  // the form whose default stream is the thread's own
  bool in_535;
  void (*function)(void);
};

extern const ProcRow kProcTable[];
extern const unsigned kProcRows;

}  // namespace simgpu
