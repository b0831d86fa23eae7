// What vgpu-probe prints in place of an answer: "error <fault> <sentence>".
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "base/error.h"

namespace vgpu::node {

inline constexpr std::string_view kProbeErrorPrefix = "error ";

inline std::string format_probe_error(const Error &error) {
  std::string sentence = error.text;
  for (char &c : sentence) {
    if (c == '\n') c = ' ';
  }
  return std::string(kProbeErrorPrefix) + std::to_string(static_cast<unsigned>(error.fault)) + " " + sentence + "\n";
}

// No error: the answer is another one.
inline Error parse_probe_error(std::string_view answer) {
  if (answer.substr(0, kProbeErrorPrefix.size()) != kProbeErrorPrefix || answer.back() != '\n') return {};
  answer.remove_prefix(kProbeErrorPrefix.size());
  answer.remove_suffix(1);
  unsigned fault = 0;
  const auto [end, trouble] = std::from_chars(answer.data(), answer.data() + answer.size(), fault);
  if (trouble != std::errc() || fault == 0 || fault > static_cast<unsigned>(Fault::timeout)) return {};
  answer.remove_prefix(static_cast<std::size_t>(end - answer.data()));
  if (answer.empty() || answer[0] != ' ') return {};
  return make_error(static_cast<Fault>(fault), "%.*s", static_cast<int>(answer.size()) - 1, answer.data() + 1);
}

}  // namespace vgpu::node
