// How the driver takes memory for cuMemAlloc: where pieces of one size lie, and by how much the device's memory shrinks when.
// By these tables the driver's blocks and size classes can be told.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>

#include "tables.h"

namespace tables {

namespace {

constexpr std::uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kBlock = 2 * kMiB;
constexpr std::uint64_t kSizes[] = {
    512,      kKiB,         4 * kKiB,     16 * kKiB, 64 * kKiB,    128 * kKiB, 256 * kKiB, 512 * kKiB, kMiB - 512, kMiB,
    kMiB + 1, 3 * kMiB / 2, 2 * kMiB - 1, 2 * kMiB,  2 * kMiB + 1, 3 * kMiB,   4 * kMiB,   5 * kMiB,   8 * kMiB};

// Enough for several blocks, in a time that also a slow driver has.
unsigned pieces_of(std::uint64_t bytes) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>(6 * kMiB / bytes, 6, 4500));
}

template <typename Key>
std::string most_frequent(const std::map<Key, unsigned> &counts, std::string (*text)(Key)) {
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](auto &a, auto &b) { return a.second < b.second; });
  if (most == counts.end()) return "-";
  return (counts.size() > 1 ? "mostly " : "") + text(most->first);
}

std::string distance_text(std::int64_t bytes) {
  return bytes < 0 ? "-" + size_name(static_cast<std::uint64_t>(-bytes)) : size_name(static_cast<std::uint64_t>(bytes));
}
std::string growth_text(std::uint64_t bytes) { return size_name(bytes); }

// What the sizes have in common.
struct Blocks {
  std::uint64_t least_step = 0;      // by which memory shrank
  std::uint64_t largest_shared = 0;  // size of pieces of which several came with one step
};

void describe(std::uint64_t bytes, Table *table, Blocks *found) {
  const unsigned count = pieces_of(bytes);
  std::vector<CUdeviceptr> pieces;
  std::map<std::int64_t, unsigned> distances;
  std::map<std::uint64_t, unsigned> growths;
  std::set<std::uint64_t> blocks;
  std::uint64_t nvml_before = 0, nvml_after = 0, bits = 0;
  device_used(&nvml_before);
  const std::uint64_t free_before = free_bytes();
  std::uint64_t free = free_before;
  double took = 0;
  for (unsigned i = 0; i < count; ++i) {
    CUdeviceptr pointer = 0;
    const Clock::time_point start = Clock::now();
    if (CU(cuMemAlloc_v2)(&pointer, bytes) != CUDA_SUCCESS) break;
    took += seconds_since(start);
    if (!pieces.empty()) ++distances[static_cast<std::int64_t>(pointer - pieces.back())];
    pieces.push_back(pointer);
    blocks.insert(pointer / kBlock);
    bits |= pointer;
    const std::uint64_t now = free_bytes();
    if (now != free) ++growths[free - now];
    free = now;
  }
  sleep_ms(100);
  device_used(&nvml_after);
  unsigned steps = 0;
  for (const auto &[growth, times] : growths) steps += times;
  const std::uint64_t taken = free_before - free;
  if (steps > 0 && (found->least_step == 0 || growths.begin()->first < found->least_step)) {
    found->least_step = growths.begin()->first;
  }
  if (steps < pieces.size()) found->largest_shared = bytes;
  for (const CUdeviceptr pointer : pieces) CU(cuMemFree_v2)(pointer);
  const std::uint64_t kept = free_before - std::min(free_before, free_bytes());
  table->add(
      {size_name(bytes), std::to_string(pieces.size()), most_frequent(distances, distance_text),
       size_name(bits & (~bits + 1)), std::to_string(blocks.size()), std::to_string(steps),
       most_frequent(growths, growth_text), mib(taken), mib(nvml_after - nvml_before),
       format("%.2f", static_cast<double>(taken) / static_cast<double>(bytes * std::max<size_t>(pieces.size(), 1))),
       mib(kept), format("%.1f", took * 1e6 / std::max<double>(static_cast<double>(pieces.size()), 1))});
}

// Whether sizes share blocks: one piece of each, all held.
void describe_mixture() {
  Table table(17, {"one piece of each", "offset in 2 MiB", "block", "grows by"});
  std::map<std::uint64_t, size_t> blocks;
  std::vector<CUdeviceptr> pieces;
  for (const std::uint64_t bytes : kSizes) {
    const std::uint64_t before = free_bytes();
    CUdeviceptr pointer = 0;
    if (CU(cuMemAlloc_v2)(&pointer, bytes) != CUDA_SUCCESS) break;
    pieces.push_back(pointer);
    const auto [block, is_new] = blocks.emplace(pointer / kBlock, blocks.size() + 1);
    table.add({size_name(bytes), size_name(pointer % kBlock), format("%s%zu", is_new ? "new, " : "", block->second),
               size_name(before - free_bytes())});
  }
  for (const CUdeviceptr pointer : pieces) CU(cuMemFree_v2)(pointer);
}

}  // namespace

int sizes() {
  make_context();
  Blocks found;
  Table table(17, {"cuMemAlloc of", "pieces", "       distance", "aligned to", "2 MiB blocks", "steps",
                   "     each step", "taken MiB", "NVML MiB", "taken/asked", "kept after free", "us each"});
  for (const std::uint64_t bytes : kSizes) describe(bytes, &table, &found);
  std::printf(
      "distance: between the addresses of one piece and the next; step: an allocation at which cuMemGetInfo fell\n\n");
  describe_mixture();
  size_t granularity = 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  CU(cuMemGetAllocationGranularity)(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  conclude(format("blocks of %s, shared by pieces of up to %s; granularity of cuMemCreate %s",
                  size_name(found.least_step).c_str(), size_name(found.largest_shared).c_str(),
                  size_name(granularity).c_str()));
  return 0;
}

}  // namespace tables
