// Apart from the tests, because <regex> takes longer to compile than most of them.

// With sanitizers g++ 12 warns of what its own header does: GCC bug 105562.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <regex>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "support.h"

namespace vgpu::test {

std::string replaced(const std::string &text, const std::string &pattern, const std::string &with) {
  return std::regex_replace(text, std::regex(pattern), with);
}

std::vector<std::string> matches(const std::string &text, const std::string &pattern) {
  const std::regex compiled(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), compiled), end; at != end; ++at) {
    found.push_back(at->str(at->size() - 1));
  }
  return found;
}

std::string Vgpuctl::normal(std::string text) const {
  text = replaced(text, "\"created\": [0-9]+", "\"created\": TIME");
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i]->pid() <= 0) continue;
    text = replaced(text, "\\b" + std::to_string(ranks_[i]->pid()) + "\\b", "PID" + std::to_string(i));
  }
  std::size_t at;
  while ((at = text.find(regions_.path())) != text.npos) text.replace(at, regions_.path().size(), "DIR");
  return text;
}

std::string without_padding(const std::string &text) { return replaced(replaced(text, " +", " "), "\n +", "\n"); }

}  // namespace vgpu::test
