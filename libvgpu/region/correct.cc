#include "correct.h"

#include <algorithm>

#include "guard.h"

namespace vgpu::region {

namespace {

std::uint64_t units_of(std::uint64_t lane) { return LaneWord::unpack(lane).units; }

}  // namespace

std::uint64_t RestMark::bytes_beside_context() const {
  std::uint64_t units = 0;
  for (unsigned kind = kind_of(Guarded::context) + 1; kind < kKinds; ++kind) units += units_of(lanes[kind]);
  return bytes_of(units - idle_units(other_guard, lanes[kind_of(Guarded::other)]));
}

std::uint64_t RestMark::context_bytes() const { return bytes_of(units_of(lanes[kind_of(Guarded::context)])); }

RestMark mark_rest(const Usage &usage, unsigned dev, unsigned slot) {
  RestMark mark;
  // Acquire on each, so that they are read in this order: the guards before their lanes, the owner before all.
  mark.owner = usage.owner(slot).load(std::memory_order_acquire);
  if (usage.has_appendix()) {
    const SlotMore &more = usage.slot_more(slot, dev);
    mark.context_guard = more.guards[static_cast<unsigned>(Guarded::context)].load(std::memory_order_acquire);
    mark.other_guard = more.guards[static_cast<unsigned>(Guarded::other)].load(std::memory_order_acquire);
  }
  for (unsigned kind = 0; kind < kKinds; ++kind) {
    mark.lanes[kind] = usage.lane(lane_number(slot, kind), dev).current.load(std::memory_order_acquire);
  }
  return mark;
}

std::uint64_t exported_beside(const Usage &usage, unsigned dev, unsigned slot) {
  if (!usage.has_appendix()) return 0;
  std::uint64_t units = 0;
  for (unsigned other = kRootSlot + 1; other < kSlots; ++other) {
    const std::uint64_t owner = usage.owner(other).load(std::memory_order_acquire);
    if (other == slot || OwnerWord::unpack(owner).state == OwnerWord::kFree) continue;
    const std::uint64_t exported = usage.slot_more(other, dev).exported_units.load(std::memory_order_acquire);
    if (exported == 0) continue;
    std::uint64_t held = 0;
    for (const Lane &lane : usage.lanes(other, dev).kinds) {
      held += LaneWord::unpack(lane.current.load(std::memory_order_acquire)).units;
    }
    units += std::min(exported, held);  // nobody shares more than they hold, whatever is written there
  }
  return bytes_of(units);
}

std::uint64_t counted_twice(const Usage &usage, unsigned dev, unsigned slot) {
  if (!usage.has_appendix()) return 0;
  const std::uint64_t imported = usage.slot_more(slot, dev).imported_units.load(std::memory_order_acquire);
  return imported != 0 ? std::min(bytes_of(std::min(imported, kMaxUnits)), exported_beside(usage, dev, slot)) : 0;
}

bool correct_context(const Usage &usage, unsigned dev, const SeenRank &seen, std::uint64_t least_bytes) {
  if (!usage.has_appendix() || !(mark_rest(usage, dev, seen.slot) == seen.before)) return false;
  const std::uint64_t beside = seen.before.bytes_beside_context() + counted_twice(usage, dev, seen.slot);
  const std::uint64_t shown = seen.bytes > beside ? seen.bytes - beside : 0;
  const std::uint64_t bytes = std::max({shown, least_bytes, kUnitBytes});
  const std::uint64_t units = std::min(units_for(bytes), kMaxUnits);
  if (bytes_of(units) == seen.before.context_bytes()) return false;
  // The guard's word holds the sequence number of the lane: if it is the same, so is what is charged.
  return fix_lane(usage, {dev, seen.slot, Guarded::context}, seen.before.context_guard, units);
}

}  // namespace vgpu::region
