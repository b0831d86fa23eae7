// Moving bytes between host memory, device memory and arrays.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

// Where `address` can be reached by us, and for how many bytes at a stretch.
struct Span {
  char *bytes = nullptr;
  size_t length = 0;
};

// A device-side address (device memory, managed or pinned host memory). `write` marks the memory as touched and makes
// managed memory resident on `accessor`. False: no accessible allocation covers [address, address + length).
bool check_device_range(Driver *driver, CUdeviceptr address, size_t length);
bool device_span(Driver *driver, CUdeviceptr address, bool write, Device *accessor, Span *span);

// Any unified address: host memory that the driver does not know is taken to be plain memory of the process.
CUresult copy_bytes(Driver *driver, Device *accessor, uint64_t to, uint64_t from, size_t length);
CUresult fill_bytes(Driver *driver, Device *accessor, CUdeviceptr to, uint32_t value, unsigned width, size_t count);
// For module variables; expects the driver's lock.
void write_device(Driver *driver, CUdeviceptr to, const void *from, size_t length);
bool is_device_address(Driver *driver, uint64_t address);

}  // namespace simgpu
