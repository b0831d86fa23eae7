// Allocations known to the kernel process, so that other processes can hold them: the exporter's side and the importer's.
#pragma once

#include "simgpu/cuda/core.h"

namespace simgpu {

// Registers the area's blocks as a shared object, once; 0 on failure.
uint64_t share_area(Driver *driver, Area *area);
uint64_t share_blocks(Driver *driver, Device *device, const BlockList &blocks, uint64_t bytes, uint64_t extra);
void drop_share(Driver *driver, uint64_t id);
// A descriptor that names the object, or -1.
int share_descriptor(Driver *driver, uint64_t id);

struct ImportedShare {
  uint64_t id = 0;
  Device *device = nullptr;
  uint64_t bytes = 0;
  uint64_t extra = 0;
  BlockList blocks;
};
// By descriptor when fd is not -1, else by import->id. CUDA_SUCCESS makes this process a holder of the object.
CUresult import_share(Driver *driver, int fd, ImportedShare *import);

// The area through which this process sees the object; opened once however often it is asked for.
CUresult open_imported_area(Driver *driver, uint64_t id, Area **area);
CUresult close_imported_area(Driver *driver, Area *area);

}  // namespace simgpu
