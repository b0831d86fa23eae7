// PTX: kernels (.entry) with their parameters, and variables (.global, .const) with their sizes and simple initial values.
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "simgpu/cuda/module/module.h"

namespace simgpu {
namespace {

bool is_word(char c) {
  return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.';
}

// Words, numbers, and single characters; comments and line directives are skipped.
class Tokens {
 public:
  Tokens(const char *text, size_t length) : at_(text), end_(text + length) {}

  bool next(std::string *token) {
    skip_blank();
    if (at_ == end_ || *at_ == '\0') return false;
    const char *start = at_;
    if (*at_ == '"') {
      for (at_++; at_ < end_ && *at_ != '"'; at_++) continue;
      if (at_ < end_) at_++;
    } else if (is_word(*at_)) {
      while (at_ < end_ && is_word(*at_)) at_++;
    } else {
      at_++;
    }
    token->assign(start, static_cast<size_t>(at_ - start));
    return true;
  }

 private:
  void skip_blank() {
    for (;;) {
      while (at_ < end_ && isspace(static_cast<unsigned char>(*at_)) != 0) at_++;
      if (end_ - at_ >= 2 && at_[0] == '/' && at_[1] == '/') {
        while (at_ < end_ && *at_ != '\n') at_++;
      } else if (end_ - at_ >= 2 && at_[0] == '/' && at_[1] == '*') {
        at_ += 2;
        while (end_ - at_ >= 2 && !(at_[0] == '*' && at_[1] == '/')) at_++;
        at_ = end_ - at_ >= 2 ? at_ + 2 : end_;
      } else {
        return;
      }
    }
  }

  const char *at_;
  const char *end_;
};

uint64_t type_bytes(const std::string &token) {
  if (token.size() < 3 || token[0] != '.' || strchr("busf", token[1]) == nullptr) return 0;
  char *end = nullptr;
  unsigned long bits = strtoul(token.c_str() + 2, &end, 10);
  if (*end != '\0' || (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128)) return 0;
  return bits / 8;
}

// One declared thing: `.align 8 .b8 name[16]`, up to and without the token that ended it.
struct Declaration {
  std::string name;
  uint64_t element = 0;
  uint64_t count = 1;
  uint64_t alignment = 0;
  bool managed = false;
  std::string end;
  uint64_t bytes() const { return element * count; }
};

Declaration read_declaration(Tokens *tokens) {
  Declaration out;
  std::string token;
  while (tokens->next(&token)) {
    if (token == ";" || token == "," || token == "=" || token == ")" || token == "(" || token == "{") {
      out.end = token;
      break;
    }
    if (token == ".align") {
      if (tokens->next(&token)) out.alignment = strtoull(token.c_str(), nullptr, 0);
    } else if (token == ".attribute") {
      while (tokens->next(&token) && token != ")")
        if (token == ".managed") out.managed = true;
    } else if (token == "[") {
      uint64_t size = 0;
      while (tokens->next(&token) && token != "]") size = strtoull(token.c_str(), nullptr, 0);
      out.count *= size;
    } else if (uint64_t bytes = type_bytes(token)) {
      out.element = bytes;
    } else if (token == ".v2" || token == ".v4") {
      out.count *= token[2] == '2' ? 2u : 4u;
    } else if (token[0] != '.') {
      out.name = token;
    }
  }
  if (out.element == 0) out.element = 8;  // texture, sampler and surface references are handles
  return out;
}

// Initial values as far as they are plain numbers; addresses of other symbols stay zero, as nothing ever follows them.
std::string read_initial(Tokens *tokens, uint64_t element) {
  std::string bytes, token;
  bool symbol = false;
  std::string sign;
  while (tokens->next(&token) && token != ";") {
    if (token == "-") {
      sign = "-";
    } else if (token == "{" || token == "}" || token == ",") {
      continue;
    } else {
      symbol = isdigit(static_cast<unsigned char>(token[0])) == 0;
      uint64_t value = 0;
      if (!symbol && token.size() > 2 && token[0] == '0' && (token[1] == 'f' || token[1] == 'd'))
        value = strtoull(token.c_str() + 2, nullptr, 16);
      else if (!symbol)
        value = strtoull(token.c_str(), nullptr, 0);
      if (sign == "-") value = 0 - value;
      sign.clear();
      for (uint64_t i = 0; i < element; i++) bytes += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
    }
  }
  return bytes;
}

void read_entry(Tokens *tokens, Image *image) {
  ImageKernel kernel;
  std::string token;
  if (!tokens->next(&kernel.name)) return;
  if (!tokens->next(&token)) return;
  if (token == "(") {
    uint32_t offset = 0;
    for (;;) {
      Declaration parameter = read_declaration(tokens);
      if (!parameter.name.empty()) {
        auto bytes = static_cast<uint32_t>(parameter.bytes());
        auto unit = static_cast<uint32_t>(parameter.alignment != 0 ? parameter.alignment : parameter.element);
        offset = static_cast<uint32_t>(round_up(offset, unit));
        kernel.parameters.emplace_back(offset, bytes);
        offset += bytes;
      }
      if (parameter.end != ",") break;
    }
  }
  // A forward declaration ends at ';' before any body, and is no kernel of this image.
  if (token != ";") {
    int depth = 0;
    std::string previous;
    while (tokens->next(&token)) {
      if (token == ";" && depth == 0) return;
      if (token == "{") depth++;
      if (token == "}" && --depth == 0) break;
      if (token == ".shared") {
        Declaration shared = read_declaration(tokens);
        kernel.shared_bytes += static_cast<uint32_t>(shared.bytes());
      }
      // A declaration, not the `.local` of an address or an instruction: those stand behind other words.
      if (token == ".local" && (previous == "{" || previous == ";")) {
        Declaration local = read_declaration(tokens);
        kernel.local_bytes += static_cast<uint32_t>(local.bytes());
        token = local.end;
      }
      previous = token;
    }
    image->kernels.push_back(kernel);
  }
}

}  // namespace

bool read_ptx(const char *text, size_t length, Image *image) {
  Tokens tokens(text, length);
  std::string token, previous;
  bool has_version = false;
  bool external = false;
  while (tokens.next(&token)) {
    if (token == ".version") has_version = true;
    if (token == ".extern") external = true;
    if (token == ".entry") {
      read_entry(&tokens, image);
      external = false;
    } else if (token == ".func") {
      // Skip parameters and body: registers and labels inside are not ours.
      int depth = 0;
      while (tokens.next(&token)) {
        if (token == ";" && depth == 0) break;
        if (token == "{") depth++;
        if (token == "}" && --depth == 0) break;
      }
      external = false;
    } else if (token == ".global" || token == ".const") {
      bool constant = token == ".const";
      Declaration declared = read_declaration(&tokens);
      ImageVariable variable;
      variable.name = declared.name;
      variable.managed = declared.managed;
      variable.constant = constant;
      if (declared.end == "=") variable.initial = read_initial(&tokens, declared.element);
      variable.bytes = declared.count == 0 ? variable.initial.size() : declared.bytes();
      variable.initial.resize(std::min<size_t>(variable.initial.size(), variable.bytes));
      if (!external && !variable.name.empty()) image->variables.push_back(variable);
      external = false;
    } else if (token == ";") {
      external = false;
    }
  }
  image->code_bytes += length;
  return has_version;
}

}  // namespace simgpu
