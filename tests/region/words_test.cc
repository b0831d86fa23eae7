// The packed words: every field keeps its bits to itself.
#include "region/words.h"

#include <gtest/gtest.h>

#include "region/layout.h"

namespace vgpu::region {
namespace {

TEST(Words, LaneFieldsDoNotTouchEachOther) {
  const LaneWord all_units = {kMaxUnits, 0};
  const LaneWord all_seq = {0, LaneWord::Seq::kMask};
  EXPECT_EQ(all_units.pack() & all_seq.pack(), 0u);
  EXPECT_EQ(all_units.pack() | all_seq.pack(), ~std::uint64_t{0});
  EXPECT_EQ(LaneWord::unpack(all_units.pack()).units, kMaxUnits);
  EXPECT_EQ(LaneWord::unpack(all_units.pack()).seq, 0u);
  EXPECT_EQ(LaneWord::unpack(all_seq.pack()).seq, (1u << 31) - 1);
}

TEST(Words, SequenceNumbersWrap) {
  EXPECT_EQ((LaneWord{5, LaneWord::Seq::kMask}).next_seq(), 0u);
  const DeviceWord word = {9, 3, 0};
  EXPECT_TRUE(word.is_tagged(3, std::uint64_t{1} << 20));  // only the low 20 bits fit
  EXPECT_FALSE(word.is_tagged(3, 1));
  EXPECT_FALSE(word.is_tagged(2, 0));
}

TEST(Words, DeviceFieldsFillTheWord) {
  const std::uint64_t units = DeviceWord{kMaxUnits, 0, 0}.pack();
  const std::uint64_t lane = DeviceWord{0, 2047, 0}.pack();
  const std::uint64_t seq = DeviceWord{0, 0, DeviceWord::Seq::kMask}.pack();
  EXPECT_EQ(units | lane | seq, ~std::uint64_t{0});
  EXPECT_EQ(units & lane, 0u);
  EXPECT_EQ(lane & seq, 0u);
  const DeviceWord back = DeviceWord::unpack(DeviceWord{123, 2047, 77}.pack());
  EXPECT_EQ(back.units, 123u);
  EXPECT_EQ(back.lane, 2047u);
  EXPECT_EQ(back.seq, 77u);
}

TEST(Words, OwnerRoundTrip) {
  const OwnerWord owner = {OwnerWord::kExiting, 15, 1, 511, (1u << 26) - 1, (1u << 22) - 1};
  const OwnerWord back = OwnerWord::unpack(owner.pack());
  EXPECT_EQ(back.state, OwnerWord::kExiting);
  EXPECT_EQ(back.ns, 15u);
  EXPECT_EQ(back.locked, 1u);
  EXPECT_EQ(back.gen, 511u);
  EXPECT_EQ(back.start, (1u << 26) - 1);
  EXPECT_EQ(back.pid, (1u << 22) - 1);
}

TEST(Words, AFreedSlotKeepsOnlyItsGeneration) {
  const OwnerWord owner = {OwnerWord::kActive, 3, 1, 41, 99, 1234};
  const OwnerWord freed = OwnerWord::unpack(OwnerWord::freed(owner.pack()));
  EXPECT_EQ(freed.state, OwnerWord::kFree);
  EXPECT_EQ(freed.gen, 42u);
  EXPECT_EQ(freed.pid, 0u);
  EXPECT_EQ(OwnerWord::unpack(OwnerWord::freed(OwnerWord{OwnerWord::kActive, 0, 0, 511, 0, 1}.pack())).gen, 0u);
}

TEST(Words, BytesRoundUpToUnits) {
  EXPECT_EQ(units_for(0), 0u);
  EXPECT_EQ(units_for(1), 1u);
  EXPECT_EQ(units_for(512), 1u);
  EXPECT_EQ(units_for(513), 2u);
  EXPECT_EQ(units_for(~std::uint64_t{0}), (std::uint64_t{1} << 55));
}

TEST(Layout, SharedLinesAreApart) {
  for (unsigned ndev : {1u, 2u, 8u, kMaxDevices}) {
    EXPECT_EQ(slots_offset(ndev) % kLine, 0u);
    EXPECT_EQ(lanes_offset(ndev, 1, 0) - slot_offset(ndev, 1), kLine);
    EXPECT_EQ(lanes_offset(ndev, 1, ndev - 1) + kLine, slot_offset(ndev, 2));
    EXPECT_EQ(usage_size(ndev, 1), slot_offset(ndev, kSlots));
    EXPECT_EQ(slot_more_offset(ndev, 0, 0), usage_size(ndev, 1) + ndev * sizeof(DeviceMore) + kLine);
    EXPECT_EQ(slot_more_offset(ndev, kSlots - 1, ndev - 1) + kLine, usage_size(ndev));
  }
}

TEST(Layout, EveryLaneHasItsOwnPlace) {
  alignas(kLine) static char base[usage_size(2)];
  const Usage usage(base, 2);
  const Lane *first = &usage.lane(lane_number(1, 0), 1);
  EXPECT_EQ(&usage.lane(lane_number(1, 3), 1), first + 3);
  EXPECT_EQ(reinterpret_cast<const char *>(first), base + lanes_offset(2, 1, 1));
}

}  // namespace
}  // namespace vgpu::region
