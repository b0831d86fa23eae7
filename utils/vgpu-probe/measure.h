// What a bare context takes on a GPU: makes one, and looks.
//
// Only where nobody can be in its way, nor it in anybody's: the compute mode must be the default one, and no process on the
// GPU, neither before nor after. No MPS server may serve it, or NVML would show the server in its place.
#pragma once

#include <string>

#include "base/error.h"
#include "node/contexts_file.h"

namespace vgpu::probe {

// In a process that ends soon: the context stays until then. `empty_directory`: where no MPS daemon listens.
Error measure_context(const std::string &nvml_library, const std::string &uuid, const std::string &empty_directory,
                      node::KnownContext *figure);

}  // namespace vgpu::probe
