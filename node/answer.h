// What vgpu-probe prints: the text of a node (node.h), or "error <fault> <sentence>".
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "base/error.h"

namespace vgpu::node {

inline constexpr std::string_view kErrorAnswer = "error ";

inline std::string format_error_answer(const Error &error) {
  std::string sentence = error.text;
  for (char &c : sentence) {
    if (c == '\n') c = ' ';
  }
  return std::string(kErrorAnswer) + std::to_string(static_cast<unsigned>(error.fault)) + " " + sentence + "\n";
}

// No error: the answer is none of these.
inline Error parse_error_answer(std::string_view answer) {
  if (answer.substr(0, kErrorAnswer.size()) != kErrorAnswer || answer.back() != '\n') return {};
  answer.remove_prefix(kErrorAnswer.size());
  answer.remove_suffix(1);
  unsigned fault = 0;
  const auto [end, trouble] = std::from_chars(answer.data(), answer.data() + answer.size(), fault);
  if (trouble != std::errc() || fault == 0 || fault > static_cast<unsigned>(Fault::timeout)) return {};
  answer.remove_prefix(static_cast<std::size_t>(end - answer.data()));
  if (answer.empty() || answer[0] != ' ') return {};
  return make_error(static_cast<Fault>(fault), "%.*s", static_cast<int>(answer.size()) - 1, answer.data() + 1);
}

}  // namespace vgpu::node
