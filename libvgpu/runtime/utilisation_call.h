// Which of NVML's two calls tells how busy processes keep a device: nvmlDeviceGetProcessesUtilizationInfo, or the older
// nvmlDeviceGetProcessUtilization. Old drivers do not have the first, newer devices no longer answer the second, and some,
// such as parts of a device (MIG), answer neither.
#pragma once

#include <atomic>
#include <cstdint>

namespace vgpu::runtime {

// For one device. All zeroes is its beginning. Relaxed: hints of their own, threads that race ask once too often.
class UtilisationCall {
 public:
  enum Which : std::uint8_t { newer, older };

  // After neither answered NVML is left in peace for so long. Absent, every tick of the feedback would make two calls in
  // vain; for ever, a device that was reset or a driver that was busy would go without feedback as long as the process lives.
  static constexpr std::uint64_t kAskAgainNs = 60'000'000'000;

  // By ask(which), which returns whether NVML answered; what answered last is asked first. False: neither did.
  template <typename Ask>
  bool ask(std::uint64_t now_ns, Ask ask) {
    const std::uint64_t refused_ns = refused_ns_.load(std::memory_order_relaxed);
    if (refused_ns != 0 && now_ns - refused_ns < kAskAgainNs) return false;
    const Which first = refused_ns != 0 ? newer : answered_.load(std::memory_order_relaxed);
    for (const Which which : {first, first == newer ? older : newer}) {
      if (!ask(which)) continue;
      answered_.store(which, std::memory_order_relaxed);
      refused_ns_.store(0, std::memory_order_relaxed);
      return true;
    }
    refused_ns_.store(now_ns, std::memory_order_relaxed);
    return false;
  }

 private:
  std::atomic<Which> answered_;
  std::atomic<std::uint64_t> refused_ns_;  // 0: one of them answered, or was not asked yet
};

}  // namespace vgpu::runtime
