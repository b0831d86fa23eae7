// The node file itself: written by temporary file and rename, read with suspicion.
#include "node.h"
#include "small_files.h"
#include "trusted_file.h"

namespace vgpu::node {

Error write_node(const std::string &path, const Node &node) {
  const std::string text = format_node(node);
  Node readable;
  if (Error error = parse_node("the new " + path, text, &readable)) return error;
  return replace_file(path, text);
}

Error read_node(const std::string &path, region::Trust trust, Node *node) {
  std::string text;
  if (Error error = read_trusted_file(path, trust, "slurmd writes it when it starts", &text)) return error;
  return parse_node(path, text, node);
}

}  // namespace vgpu::node
