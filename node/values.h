// Limits as people type them (--gpu-mem, --gpu-sm) and sizes as people read them.
//
// Strict and independent of the locale: what is not exactly one of the documented forms is refused, with a sentence that
// says what was wrong and gives an example. `option` names the option, variable or key in that sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace vgpu::node {

// One value of --gpu-mem: a size, or a share of a device that is not known yet.
struct MemoryLimit {
  std::uint64_t bytes = 0;               // 0: a share
  std::uint64_t percent_millionths = 0;  // 50% is 50'000'000

  bool is_share() const { return bytes == 0; }
  bool operator==(const MemoryLimit &) const = default;
};

// One value of --gpu-mem for every GPU of the job, or one for each in order.
class MemoryLimits {
 public:
  MemoryLimits() = default;
  explicit MemoryLimits(std::vector<MemoryLimit> values) : values_(std::move(values)) {}

  const std::vector<MemoryLimit> &values() const { return values_; }
  bool empty() const { return values_.empty(); }

  // Fails when there is a value per GPU and their number is another.
  Error check_gpus(std::string_view option, unsigned gpus) const;
  // In bytes, for GPU `index` of the job, which has `device_bytes`. After check_gpus(). A size larger than the device is
  // returned as it is.
  Error resolve(std::string_view option, unsigned index, std::uint64_t device_bytes, std::uint64_t *bytes) const;

 private:
  std::vector<MemoryLimit> values_;
};

// "8G", "1.5g", "512MiB", "8GB", "1000000B": binary units, at most six decimals. "50%", "12.5%": of the device.
Error parse_memory(std::string_view option, std::string_view text, MemoryLimit *limit);
// A size only.
Error parse_size(std::string_view option, std::string_view text, std::uint64_t *bytes);
// As parse_memory(), or several with commas between them.
Error parse_memory_list(std::string_view option, std::string_view text, MemoryLimits *limits);
// "1" to "100", with or without a percent sign.
Error parse_sm(std::string_view option, std::string_view text, std::uint32_t *percent);

// "512MiB", "7.5GiB", "8000MiB", "0B". Reads back as the same value whenever a short number says it exactly; else rounded
// to two decimals.
std::string format_bytes(std::uint64_t bytes);
// As parse_memory() reads it: "8GiB", "12.5%".
std::string format_memory(const MemoryLimit &limit);

}  // namespace vgpu::node
