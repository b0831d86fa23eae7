// Where the other parts of slurm-vgpu are.
#pragma once

#include <string>

#include "base/error.h"

namespace vgpu::node {

// `wanted` if it is given; else in the build tree, if we are run from there; else where it was installed.
Error find_library(const std::string &wanted, std::string *path);
// Empty: where it was installed.
std::string find_probe();

}  // namespace vgpu::node
