// A small world in which every schedule of the protocol can be tried: one device, a few slots, and the invariant after every step.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "explorer.h"
#include "region/accounting.h"
#include "region/admin.h"
#include "region/correct.h"
#include "region/guard.h"
#include "support.h"

namespace vgpu::test {

using namespace region;

// Under a sanitizer or an emulator: ten times slower, and looking for other things.
inline bool is_slow() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return is_emulated();
#endif
}

inline constexpr unsigned kTestSlots = 4;  // root's and three ranks'

// One device, a few slots, and what the ranks believe to hold.
struct World {
  struct RankState {
    bool alive = false;
    bool busy = false;        // within an operation
    std::uint64_t held = 0;   // granted and not yet released
    std::uint64_t small = 0;  // of the guarded lane: what it really uses
    std::uint64_t owner = 0;  // its owner word
  };

  alignas(kLine) std::array<char, usage_size(1)> memory;
  Usage usage{memory.data(), 1};
  Word limit;
  std::array<RankState, kTestSlots> ranks;
  std::uint64_t lowered_to = 0;  // set once an administrator is done: nothing may grow beyond it any more
  std::uint64_t last_total = 0;
  bool admin_at_work = false;
  bool false_refusal = false;

  void reset(std::uint64_t limit_units) {
    // Only what a run can have touched: the explorer does this a hundred thousand times.
    false_refusal = false;
    usage.device(0).total.store(0);
    usage.device(0).peak_units.store(0);
    for (unsigned slot = 0; slot < kTestSlots; ++slot) {
      usage.owner(slot).store(0);
      std::memset(static_cast<void *>(&usage.lanes(slot, 0)), 0, sizeof(SlotLanes));
      std::memset(static_cast<void *>(&usage.slot_more(slot, 0)), 0, sizeof(SlotMore));
      ranks[slot] = {};
    }
    limit.store(limit_units * kUnitBytes);
    lowered_to = 0;
    last_total = 0;
    admin_at_work = false;
  }

  std::uint64_t total() const { return DeviceWord::unpack(usage.device(0).total.load()).units; }

  std::uint64_t lane_units(unsigned slot, unsigned kind = 2) const {
    const std::uint64_t number = lane_number(slot, kind);
    const Lane &lane = usage.lane(number, 0);
    return effective_units(number, usage.device(0).total.load(), lane.current.load(), lane.next.load());
  }
  static GuardedLane blocks(unsigned slot) { return {0, slot, Guarded::other}; }
  static GuardedLane contexts(unsigned slot) { return {0, slot, Guarded::context}; }

  std::string check() {
    std::uint64_t sum = 0;
    for (unsigned slot = 0; slot < kTestSlots; ++slot) {
      for (unsigned kind = 0; kind < kKinds; ++kind) sum += lane_units(slot, kind);
      if (ranks[slot].alive && lane_units(slot, 3) < ranks[slot].small) {
        return "slot " + std::to_string(slot) + " uses " + std::to_string(ranks[slot].small) +
               " in blocks but counts " + std::to_string(lane_units(slot, 3));
      }
      if (ranks[slot].alive && !ranks[slot].busy && lane_units(slot) != ranks[slot].held) {
        return "slot " + std::to_string(slot) + " holds " + std::to_string(ranks[slot].held) + " but counts " +
               std::to_string(lane_units(slot));
      }
    }
    if (false_refusal) return "refused for what a dead rank held";
    if (sum != total()) return "total " + std::to_string(total()) + " but lanes add up to " + std::to_string(sum);
    if (total() * kUnitBytes > limit.load() && lowered_to == 0 && !admin_at_work) return "over the limit";
    if (lowered_to != 0 && total() > last_total && total() > lowered_to) return "grew beyond a lowered limit";
    last_total = total();
    return "";
  }

  // What a process does, with the same calls as Rank.
  void claim(unsigned slot) {
    std::uint64_t word = usage.owner(slot).load();
    if (OwnerWord::unpack(word).state != OwnerWord::kFree) return;
    const std::uint64_t owner = OwnerWord{OwnerWord::kActive, 0, 0, OwnerWord::Gen::get(word), 0, 100 + slot}.pack();
    if (!usage.owner(slot).compare_exchange_strong(word, owner)) return;
    ranks[slot] = {.alive = true, .owner = owner};
  }
  bool reserve(unsigned slot, std::uint64_t units) {
    ranks[slot].busy = true;
    const bool granted = change_lane(usage, 0, {lane_number(slot, 2), true, units, &limit}).commit == Commit::done;
    if (granted) ranks[slot].held += units;
    ranks[slot].busy = false;
    return granted;
  }
  void release(unsigned slot, std::uint64_t units) {
    ranks[slot].busy = true;
    ranks[slot].held -= units;
    change_lane(usage, 0, {lane_number(slot, 2), false, units});
    ranks[slot].busy = false;
  }
  // What Rank does with blocks: charge ahead, use, empty.
  bool top_up(unsigned slot, std::uint64_t units) {
    std::uint64_t idle = close_guard(usage, blocks(slot));
    const bool granted = change_lane(usage, 0, {blocks(slot).number(), true, units, &limit}).commit == Commit::done;
    if (granted) idle += units;
    open_guard(usage, blocks(slot), idle);
    return granted;
  }
  bool use_block(unsigned slot, std::uint64_t units) {
    std::uint64_t before = 0;
    Moved moved = use_idle_units(words_of(usage, blocks(slot)), units, &before);
    if (moved == Moved::closed) {
      const std::uint64_t idle = close_guard(usage, blocks(slot));
      moved = idle >= units ? Moved::yes : Moved::no;
      open_guard(usage, blocks(slot), moved == Moved::yes ? idle - units : idle);
    }
    if (moved == Moved::yes) ranks[slot].small += units;
    return moved == Moved::yes;
  }
  void empty_block(unsigned slot, std::uint64_t units, std::uint64_t most) {
    ranks[slot].small -= units;
    std::uint64_t before = 0;
    if (add_idle_units(words_of(usage, blocks(slot)), units, most, &before) == Moved::yes) return;
    const std::uint64_t idle = close_guard(usage, blocks(slot));
    change_lane(usage, 0, {blocks(slot).number(), false, units});
    open_guard(usage, blocks(slot), idle);
  }
  void steal(unsigned slot) { steal_idle_units(usage, 0, slot); }
  // What Rank does with contexts, and what a look does to them.
  void change_context(unsigned slot, bool grow, std::uint64_t units) {
    close_guard(usage, contexts(slot));
    change_lane(usage, 0, {contexts(slot).number(), grow, units});
    open_guard(usage, contexts(slot), 0);
  }
  void correct(const SeenRank &seen) { correct_context(usage, 0, seen, 0); }
  void crash(unsigned slot) { ranks[slot].alive = false; }
  void sweep_slot(unsigned slot) {
    const std::uint64_t owner = usage.owner(slot).load();
    if (OwnerWord::unpack(owner).state == OwnerWord::kFree) return;
    if (owner == ranks[slot].owner && ranks[slot].alive) return;
    if (!was_ever_used(usage, slot, 0)) return;
    reclaim(usage, slot, owner);
  }
  // Rank::reserve: what was dead when the sweep began must not be what it is refused for.
  void reserve_or_be_refused_truly(unsigned slot, std::uint64_t units, unsigned neighbour) {
    if (reserve(slot, units)) return;
    const bool was_dead = !ranks[neighbour].alive;
    sweep_slot(neighbour);
    if (reserve(slot, units)) return;
    if (was_dead && lane_units(neighbour) != 0) false_refusal = true;
  }
  void store_limit(std::uint64_t units) {
    limit.store(units * kUnitBytes);
    VGPU_STEP(limit_stored);
    retire_old_limit(usage, 0);
  }
  void set_limit(std::uint64_t units) {
    admin_at_work = true;
    store_limit(units);
    lowered_to = units;
    last_total = total();
  }

  // After everything: one more sweep settles what the dead left, and only that.
  std::string settle() {
    for (unsigned slot = 1; slot < kTestSlots; ++slot) {
      const std::uint64_t owner = usage.owner(slot).load();
      if (!ranks[slot].alive && OwnerWord::unpack(owner).state != OwnerWord::kFree) reclaim(usage, slot, owner);
    }
    std::uint64_t held = 0;
    for (unsigned slot = 1; slot < kTestSlots; ++slot) {
      if (ranks[slot].alive) {
        steal(slot);
        close_guard(usage, contexts(slot));
        held += ranks[slot].held + ranks[slot].small + lane_units(slot, 0);
      } else if (OwnerWord::unpack(usage.owner(slot).load()).state != OwnerWord::kFree) {
        return "slot " + std::to_string(slot) + " of a dead rank was not given back";
      }
    }
    if (std::string violation = check(); !violation.empty()) return violation;
    if (total() != held) return "total " + std::to_string(total()) + " but " + std::to_string(held) + " are held";
    return "";
  }
};

class Schedules : public ::testing::Test {
 protected:
  Task rank(std::function<void()> body, unsigned slot) {
    return {std::move(body), [this, slot] { world_.crash(slot); }};
  }
  Task bystander(std::function<void()> body) {
    return {std::move(body), [] {}};
  }

  void explore(std::uint64_t limit, Bounds bounds, const std::function<std::vector<Task>()> &make) {
    Explorer explorer({[&, limit] {
                         world_.reset(limit);
                         return make();
                       },
                       [&] { return world_.check(); }, [&] { return world_.settle(); }},
                      {bounds.preemptions - (is_slow() ? 1 : 0), bounds.crashes});
    const std::string violation = explorer.explore();
    step_hook = nullptr;
    EXPECT_EQ(violation, "");
    RecordProperty("schedules", static_cast<int>(explorer.schedules()));
    EXPECT_GT(explorer.schedules(), is_slow() ? 50u : 1000u) << "too few to mean anything";
  }

  void make_dead_rank_with_idle() {
    world_.claim(1);
    world_.top_up(1, 2);
    world_.use_block(1, 1);
    world_.crash(1);
  }
  // The next owner of the slot.
  void take_over() {
    world_.sweep_slot(1);
    world_.claim(1);
    if (!world_.ranks[1].alive) return;
    world_.top_up(1, 1);
    world_.use_block(1, 1);
    world_.top_up(1, 2);
  }

  World world_;
};

}  // namespace vgpu::test
