// The protocol under all schedules with a few preemptions and crashes, with its invariant checked after every step.
#include "schedules.h"

namespace vgpu::test {
namespace {

TEST_F(Schedules, TwoRanksAndASweeperShareALimit) {
  explore(3, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.claim(2);
    return {rank(
                [&] {
                  if (world_.reserve(1, 2)) world_.release(1, 1);
                },
                1),
            rank(
                [&] {
                  if (!world_.reserve(2, 2)) {
                    world_.sweep_slot(1);
                    world_.reserve(2, 2);
                  }
                },
                2),
            bystander([&] {
              world_.sweep_slot(1);
              world_.sweep_slot(2);
            })};
  });
}

TEST_F(Schedules, TwoSweepersAfterACrash) {
  explore(4, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.claim(2);
    world_.reserve(1, 1);
    return {rank(
                [&] {
                  world_.reserve(1, 2);
                  world_.release(1, 3);
                },
                1),
            bystander([&] { world_.sweep_slot(1); }),
            rank(
                [&] {
                  world_.sweep_slot(1);
                  world_.reserve(2, 1);
                },
                2)};
  });
}

// A rank dies, its slot goes to a new rank, and a sweeper that looked before all that wakes up.
TEST_F(Schedules, AStaleSweeperDoesNotHarmTheNextOwner) {
  explore(4, {3, 0}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.reserve(1, 2);
    world_.crash(1);
    const std::uint64_t dead = world_.ranks[1].owner;
    return {bystander([this, dead] { reclaim(world_.usage, 1, dead); }), rank(
                                                                             [&] {
                                                                               world_.sweep_slot(1);
                                                                               world_.claim(1);
                                                                               if (world_.ranks[1].alive) {
                                                                                 world_.reserve(1, 1);
                                                                                 world_.reserve(1, 1);
                                                                               }
                                                                             },
                                                                             1)};
  });
}

TEST_F(Schedules, ARefusalIsTrueWhoeverElseDies) {
  explore(2, {2, 2}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.claim(2);
    return {rank([&] { world_.reserve(1, 2); }, 1), bystander([&] { world_.sweep_slot(1); }),
            Task{[&] { world_.reserve_or_be_refused_truly(2, 1, 1); }}};
  });
}

TEST_F(Schedules, ThreeRanksPassMemoryAround) {
  explore(2, {2, 0}, [&]() -> std::vector<Task> {
    for (unsigned slot : {1u, 2u, 3u}) world_.claim(slot);
    const auto body = [&](unsigned slot) {
      return [this, slot] {
        if (world_.reserve(slot, 1)) world_.release(slot, 1);
      };
    };
    return {rank(body(1), 1), rank(body(2), 2), rank(body(3), 3)};
  });
}

TEST_F(Schedules, NothingGrowsBeyondALoweredLimit) {
  explore(4, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.claim(2);
    return {rank([&] { world_.reserve(1, 2); }, 1), rank([&] { world_.reserve(2, 2); }, 2),
            Task{[&] { world_.set_limit(1); }}};
  });
}

// Root killed at any step while it lowers the limit, and set again by the next one (the OFD lock keeps them apart).
TEST_F(Schedules, ALimitSetAgainAfterADeadAdministratorHolds) {
  bool first_ended = false;
  explore(4, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    first_ended = false;
    world_.admin_at_work = true;
    return {Task{[&] { world_.reserve(1, 2); }},
            Task{[&] {
                   world_.store_limit(3);
                   first_ended = true;
                 },
                 [&] { first_ended = true; }},
            Task{[&] {
              if (first_ended) world_.set_limit(1);
            }}};
  });
}

// ---- guards ---------------------------------------------------------------------------------------------------------

TEST_F(Schedules, ThievesTakeWhatIsIdleAndNothingElse) {
  explore(3, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.top_up(1, 1);
    const Task thief = bystander([&] { world_.steal(1); });
    return {Task{[&] {
              if (world_.use_block(1, 1)) world_.top_up(1, 1);
              if (world_.ranks[1].small != 0) world_.empty_block(1, 1, 2);
              world_.use_block(1, 1);
            }},
            thief, thief};
  });
}

// Blocks are opened, emptied and given back by a rank that may die at any step, while others take and sweep.
TEST_F(Schedules, AThiefAndASweeperMeetAtADyingRank) {
  explore(4, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.top_up(1, 2);
    world_.use_block(1, 1);
    return {rank(
                [&] {
                  world_.use_block(1, 1);
                  world_.empty_block(1, 1, 1);
                  world_.top_up(1, 1);
                },
                1),
            bystander([&] { world_.steal(1); }), bystander([&] { world_.sweep_slot(1); })};
  });
}

// A rank dies with something idle; a thief and a sweeper look; the slot goes to a new rank, and they wake up.
TEST_F(Schedules, AStaleThiefDoesNotHarmTheNextOwner) {
  explore(6, {3, 0}, [&]() -> std::vector<Task> {
    make_dead_rank_with_idle();
    return {bystander([&] { world_.steal(1); }), rank([&] { take_over(); }, 1)};
  });
}

TEST_F(Schedules, AStaleThiefAndAStaleSweeperDoNotHarmTheNextOwner) {
  explore(6, {2, 0}, [&]() -> std::vector<Task> {
    make_dead_rank_with_idle();
    const std::uint64_t dead = world_.ranks[1].owner;
    return {bystander([this, dead] { reclaim(world_.usage, 1, dead); }), bystander([&] { world_.steal(1); }),
            rank([&] { take_over(); }, 1)};
  });
}

// The dead rank had opened its guards and never had anything: its successor's words are the same.
TEST_F(Schedules, AStaleSweeperMayCloseTheGuardOfALaneThatWasNeverUsed) {
  explore(2, {3, 0}, [&]() -> std::vector<Task> {
    world_.claim(1);
    open_guard(world_.usage, World::blocks(1), 0);
    world_.crash(1);
    const std::uint64_t dead = world_.ranks[1].owner;
    return {bystander([this, dead] { reclaim(world_.usage, 1, dead); }), rank(
                                                                             [&] {
                                                                               reclaim(world_.usage, 1,
                                                                                       world_.ranks[1].owner);
                                                                               world_.claim(1);
                                                                               if (!world_.ranks[1].alive) return;
                                                                               world_.use_block(1, 1);
                                                                               world_.top_up(1, 1);
                                                                               world_.use_block(1, 1);
                                                                             },
                                                                             1)};
  });
}

// A growth that was refused leaves a `next` behind that was never committed.
TEST_F(Schedules, ARefusedGrowthDoesNotMisleadAThief) {
  explore(2, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.claim(2);
    world_.top_up(1, 1);
    return {rank([&] { world_.top_up(1, 2); }, 1), bystander([&] { world_.steal(1); }),
            rank(
                [&] {
                  world_.reserve(2, 2);
                  world_.sweep_slot(1);
                },
                2)};
  });
}

// Nobody is refused for what is idle, even if another thief died half-way.
TEST_F(Schedules, WhatIsIdleIsThereForWhoeverNeedsIt) {
  explore(2, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.claim(2);
    world_.claim(3);
    world_.top_up(1, 2);
    const auto thief = [&] { world_.steal(1); };
    return {rank(thief, 3), bystander(thief), Task{[&] {
              world_.steal(1);
              if (!world_.reserve(2, 2)) world_.false_refusal = true;
            }}};
  });
}

TEST_F(Schedules, ALookCorrectsAContextThatItsOwnerLeavesAlone) {
  explore(9, {2, 1}, [&]() -> std::vector<Task> {
    world_.claim(1);
    world_.change_context(1, true, 4);
    const SeenRank seen = {1, 2 * kUnitBytes, mark_rest(world_.usage, 0, 1)};
    return {rank(
                [&] {
                  world_.change_context(1, true, 3);
                  world_.change_context(1, false, 3);
                },
                1),
            bystander([this, seen] { world_.correct(seen); }), bystander([this, seen] {
              world_.correct(seen);
              world_.sweep_slot(1);
            })};
  });
}

// A helper stopped for 2^20 operations of the lane holds a tag that fits again, to an operation not yet committed.
TEST_F(Schedules, AHelperThatSleptThroughAWholeRoundOfTagsDoesNothing) {
  world_.reset(8);
  Lane &lane = world_.usage.lane(lane_number(1, 2), 0);
  lane.current.store(LaneWord{1, (1 << 20) + 4}.pack());
  lane.next.store(LaneWord{6, (1 << 20) + 5}.pack());
  world_.usage.device(0).total.store(DeviceWord{1, lane_number(2, 2), 9}.pack());
  help(world_.usage, 0, DeviceWord{3, lane_number(1, 2), 5}.pack());
  EXPECT_EQ(LaneWord::unpack(lane.current.load()).units, 1u);
}

}  // namespace
}  // namespace vgpu::test
