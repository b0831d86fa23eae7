// Texts that somebody else chose, made safe for a terminal and a log: escape sequences and line ends are orders there.
#pragma once

#include <algorithm>
#include <string>

namespace vgpu::node {

// Whatever is not plain ASCII becomes a question mark.
inline std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace vgpu::node
