#include "meter.h"

#include <algorithm>

#include "region/sm_words.h"

namespace vgpu::sm {

namespace {

using std::memory_order_relaxed;

// A ratio is believed within these bounds, whatever is in the word.
constexpr std::uint64_t kLeastRatio = region::TrimWord::kOne / 64;
constexpr std::uint64_t kLargestRatio = region::TrimWord::kOne * 64;

Price price_now(const region::DeviceUsage &device, std::uint32_t percent, bool *shared) {
  const region::TrimWord trim = region::TrimWord::unpack(device.trim.load(memory_order_relaxed));
  *shared = trim.shared;
  return {std::clamp(percent, 1u, 100u), std::clamp(trim.ratio, kLeastRatio, kLargestRatio)};
}

}  // namespace

Decision decide(region::DeviceUsage &device, Meter &meter, Cost &cost, Purse &purse, std::uint32_t percent,
                std::uint64_t now_ns) {
  bool shared;
  const Price price = price_now(device, percent, &shared);
  const std::uint64_t estimate = Costs::estimate(cost);
  const bool known = estimate != 0;
  const bool settled = cost.settled_ns.load(memory_order_relaxed) != 0;
  const std::uint64_t own = known ? estimate : Costs::guess(cost, now_ns);

  // Whole launches: what is left over would be launched when the device is another's.
  const std::uint64_t wanted = settled ? own * std::max<std::uint64_t>(kPieceNs / own, 1) : own;
  // What is not known yet is measured again and again, but not while it is in its own way.
  const bool due = settled ? now_ns - meter.measured_ns.load(memory_order_relaxed) >= kMeasureEveryNs
                           : cost.under_way.load(memory_order_relaxed) == 0;
  const Take what = {wanted > purse.credit_ns ? wanted - purse.credit_ns : 0, own, std::max(wanted, purse.credit_ns),
                     known, due};
  const Taken taken = take(device, meter.standing, price, what, now_ns);
  if (!taken.granted) return {false, taken.until_ns};
  purse.credit_ns = purse.credit_ns + what.cost_ns - own;
  ++purse.launches;
  if (!known) Costs::note_guess(cost, own, now_ns);
  if (due) meter.measured_ns.store(now_ns, memory_order_relaxed);
  return {true, 0, own, due, taken.alone, taken.held_ns};
}

bool learn(region::DeviceUsage &device, Costs &costs, Cost &cost, Measurement measured, std::uint32_t percent) {
  const Price price = price_now(device, percent, &measured.shared);
  const std::int64_t difference = costs.learn(cost, measured);
  correct(device, price, difference);
  return difference < -static_cast<std::int64_t>(kPieceNs);
}

void give_back(region::DeviceUsage &device, Purse &purse, std::uint32_t percent) {
  bool shared;
  correct(device, price_now(device, percent, &shared), -static_cast<std::int64_t>(purse.credit_ns));
  purse.credit_ns = 0;
}

}  // namespace vgpu::sm
