// What the simulated linker returns: its inputs, one after the other. A real one would return a cubin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace simgpu {

constexpr char kLinkedMagic[8] = "SGLINK1";

struct LinkedHeader {
  char magic[8] = {};
  uint64_t bytes = 0;
  uint32_t parts = 0;
  uint32_t unused = 0;
};

std::string pack_linked(const std::vector<std::string> &parts);

}  // namespace simgpu
