#include "values.h"

#include <algorithm>
#include <cstdio>

#include "region/layout.h"

namespace vgpu::node {

namespace {

constexpr std::uint64_t kMillion = 1'000'000;
constexpr std::size_t kMaxWholeDigits = 12;
constexpr std::size_t kMaxDecimals = 6;

constexpr std::uint64_t kSmallestLimit = region::kUnitBytes;
constexpr std::uint64_t kLargestLimit = region::kMaxUnits * region::kUnitBytes;

// std::isdigit and friends ask the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// What the user typed, safe to show on a terminal.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string out;
  for (const char c : text.substr(0, kLongest)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > kLongest ? out + "..." : out;
}

Error refuse(std::string_view option, std::string_view text, const std::string &why, const char *remedy) {
  return make_error(Fault::invalid, "%s=%s: %s; %s", shown(option).c_str(), shown(text).c_str(), why.c_str(), remedy);
}

Error refuse_memory(std::string_view option, std::string_view text, const std::string &why) {
  return refuse(option, text, why, "give a size like 8G, 1.5G or 512M, or a share of the GPU like 50%");
}

Error refuse_sm(std::string_view option, std::string_view text, const std::string &why) {
  return refuse(option, text, why, "give a percentage from 1 to 100, like 50");
}

// Why no number can start here, in words; empty if one can.
std::string bad_start(std::string_view text) {
  if (text.empty()) return "the value is empty";
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c >= 127; })) return "that is not plain ASCII";
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' '; })) return "there are blanks in it";
  if (text[0] == '-') return "a limit cannot be negative";
  if (!is_digit(text[0])) return "it does not start with a digit";
  return "";
}

// A decimal number and the text behind it.
struct Number {
  std::uint64_t millionths = 0;
  bool has_point = false;
  std::string_view rest;
};

// Empty on success, else why not.
std::string read_number(std::string_view text, Number *number) {
  if (std::string why = bad_start(text); !why.empty()) return why;
  std::size_t end = 0;
  std::uint64_t value = 0;
  for (; end < text.size() && is_digit(text[end]); ++end) {
    if (end == kMaxWholeDigits) return "the number is too large";
    value = value * 10 + static_cast<std::uint64_t>(text[end] - '0');
  }
  std::size_t decimals = 0;
  if (end < text.size() && text[end] == '.') {
    number->has_point = true;
    for (++end; end < text.size() && is_digit(text[end]); ++end, ++decimals) {
      if (decimals == kMaxDecimals) return "there are more than six decimals";
      value = value * 10 + static_cast<std::uint64_t>(text[end] - '0');
    }
    if (decimals == 0) return "there is no digit behind the point";
  }
  for (; decimals < kMaxDecimals; ++decimals) value *= 10;
  number->millionths = value;
  number->rest = text.substr(end);
  return "";
}

constexpr std::string_view kUnits = "bkmgt";

// The power of 1024 that a unit stands for; -1: it is none.
int unit_exponent(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), to_lower);
  if (lower == "b") return 0;
  const std::size_t exponent = lower.empty() ? std::string_view::npos : kUnits.find(lower[0], 1);
  if (exponent == std::string_view::npos) return -1;
  const std::string_view spelling = std::string_view(lower).substr(1);
  return spelling.empty() || spelling == "b" || spelling == "ib" ? static_cast<int>(exponent) : -1;
}

std::string read_size(const Number &number, MemoryLimit *limit) {
  if (number.rest.empty()) return "the unit is missing";
  const int exponent = unit_exponent(number.rest);
  if (exponent < 0) return "'" + shown(number.rest) + "' is not a unit";
  if (exponent == 0 && number.has_point) return "there are no fractions of a byte";
  if (number.millionths == 0) return "a limit of zero leaves nothing to run with";
  // At most 10^18 * 2^40: fits 128 bits.
  const auto exact = static_cast<unsigned __int128>(number.millionths) << (10 * exponent);
  const unsigned __int128 bytes = exact / kMillion;
  if (bytes < kSmallestLimit) return "less than " + format_bytes(kSmallestLimit) + " cannot be accounted for";
  if (bytes > kLargestLimit) return "4TiB and more cannot be accounted for";
  *limit = {static_cast<std::uint64_t>(bytes), 0};
  return "";
}

std::string read_share(const Number &number, MemoryLimit *limit) {
  if (number.millionths == 0) return "a limit of zero leaves nothing to run with";
  if (number.millionths > 100 * kMillion) return "there is no more than 100% of a GPU";
  *limit = {0, number.millionths};
  return "";
}

// `hundredths` as "7.5" or "8".
std::string decimal(unsigned __int128 hundredths) {
  std::string text = std::to_string(static_cast<std::uint64_t>(hundredths / 100));
  if (const auto rest = static_cast<unsigned>(hundredths % 100); rest != 0) {
    text += '.';
    text += static_cast<char>('0' + rest / 10);
    if (rest % 10 != 0) text += static_cast<char>('0' + rest % 10);
  }
  return text;
}

constexpr const char *kUnitNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

}  // namespace

Error parse_memory(std::string_view option, std::string_view text, MemoryLimit *limit) {
  Number number;
  std::string why = read_number(text, &number);
  if (why.empty()) why = number.rest == "%" ? read_share(number, limit) : read_size(number, limit);
  if (!why.empty()) return refuse_memory(option, text, why);
  return {};
}

Error parse_size(std::string_view option, std::string_view text, std::uint64_t *bytes) {
  MemoryLimit parsed;
  if (Error error = parse_memory(option, text, &parsed)) return error;
  if (parsed.is_share()) {
    return make_error(Fault::invalid, "%.*s=%.*s: that is not a size; give one like 450M",
                      static_cast<int>(option.size()), option.data(),
                      static_cast<int>(std::min<std::size_t>(text.size(), 100)), text.data());
  }
  *bytes = parsed.bytes;
  return {};
}

Error parse_memory_list(std::string_view option, std::string_view text, MemoryLimits *limits) {
  std::vector<MemoryLimit> values;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string_view item = text.substr(start, end - start);
    if (item.empty() && !text.empty()) return refuse_memory(option, text, "there is nothing beside a comma");
    if (values.size() == region::kMaxDevices)
      return refuse_memory(option, text, "there are more values than a node has GPUs");
    MemoryLimit value;
    if (Error error = parse_memory(option, item, &value)) return error;
    values.push_back(value);
    start = end + 1;
  }
  *limits = MemoryLimits(std::move(values));
  return {};
}

Error parse_sm(std::string_view option, std::string_view text, std::uint32_t *percent) {
  Number number;
  if (std::string why = read_number(text, &number); !why.empty()) return refuse_sm(option, text, why);
  if (number.has_point) return refuse_sm(option, text, "only whole percentages can be had");
  if (!number.rest.empty() && number.rest != "%") {
    return refuse_sm(option, text, "'" + shown(number.rest) + "' behind the number means nothing");
  }
  const std::uint64_t value = number.millionths / kMillion;
  if (value < 1 || value > 100) return refuse_sm(option, text, "that is not within 1 to 100");
  *percent = static_cast<std::uint32_t>(value);
  return {};
}

Error MemoryLimits::check_gpus(std::string_view option, unsigned gpus) const {
  if (values_.size() <= 1 || values_.size() == gpus) return {};
  return make_error(Fault::invalid, "%s has %zu values, but there %s %u GPU%s; give one value, or one for each GPU",
                    shown(option).c_str(), values_.size(), gpus == 1 ? "is" : "are", gpus, gpus == 1 ? "" : "s");
}

Error MemoryLimits::resolve(std::string_view option, unsigned index, std::uint64_t device_bytes,
                            std::uint64_t *bytes) const {
  if (values_.empty() || (values_.size() > 1 && index >= values_.size())) {
    return make_error(Fault::invalid, "%s says nothing about GPU %u; give one value, or one for each GPU",
                      shown(option).c_str(), index);
  }
  const MemoryLimit &value = values_.size() == 1 ? values_[0] : values_[index];
  if (!value.is_share()) {
    *bytes = value.bytes;
    return {};
  }
  const auto share = static_cast<unsigned __int128>(device_bytes) * value.percent_millionths / (100 * kMillion);
  if (share < kSmallestLimit) {
    return make_error(Fault::invalid, "%s=%s of GPU %u, which has %s, is nothing; give a size like 8G",
                      shown(option).c_str(), format_memory(value).c_str(), index, format_bytes(device_bytes).c_str());
  }
  *bytes = static_cast<std::uint64_t>(share);
  return {};
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kLongest = 100'000;  // in front of the point: what a reader takes in at a glance
  unsigned largest = 0;
  while (largest + 1 < std::size(kUnitNames) && bytes >> (10 * (largest + 1)) != 0) ++largest;
  const auto hundredfold = static_cast<unsigned __int128>(bytes) * 100;
  for (unsigned unit = largest + 1; unit-- > 0;) {
    const unsigned shift = 10 * unit;
    if (bytes >> shift >= kLongest) break;
    if ((hundredfold >> shift) << shift == hundredfold) return decimal(hundredfold >> shift) + kUnitNames[unit];
  }
  const unsigned shift = 10 * largest;
  const unsigned __int128 half = (static_cast<unsigned __int128>(1) << shift) / 2;
  return decimal((hundredfold + half) >> shift) + kUnitNames[largest];
}

std::string format_memory(const MemoryLimit &limit) {
  if (!limit.is_share()) return format_bytes(limit.bytes);
  std::string text = std::to_string(limit.percent_millionths / kMillion);
  if (const std::uint64_t rest = limit.percent_millionths % kMillion; rest != 0) {
    char digits[16];
    std::snprintf(digits, sizeof digits, ".%06llu", static_cast<unsigned long long>(rest));
    text += digits;
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text + "%";
}

}  // namespace vgpu::node
