#include "simgpu/cuda/memory/blocks.h"

#include <sys/mman.h>
#include <time.h>

namespace simgpu {
namespace {

constexpr uint64_t kPatienceNs = 50ull * 1000 * 1000;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

// One pass over the device from the hint. What it claimed is left in `out`, also when that is not enough.
bool BlockSource::claim_round(uint32_t count, uint32_t word, BlockList *out) {
  std::atomic<uint32_t> *owners = state_->owners();
  uint32_t total = state_->block_count;
  uint32_t at = hint_ < total ? hint_ : 0;
  for (uint32_t seen = 0; seen < total; seen++) {
    uint32_t free = 0;
    // Acquire pairs with the release of whoever freed the block: his dropping of the bytes comes before our use of them.
    if (owners[at].load(std::memory_order_relaxed) == 0 &&
        owners[at].compare_exchange_strong(free, word, std::memory_order_acquire, std::memory_order_relaxed)) {
      out->push_back(at);
      if (--count == 0) {
        hint_ = at;
        return true;
      }
    }
    if (++at == total) at = 0;
  }
  return false;
}

bool BlockSource::others_claiming() const {
  for (unsigned i = 1; i < kMaxProcesses; i++)
    if (i != slot_ && state_->slots[i].claiming.load(std::memory_order_acquire) != 0) return true;
  return false;
}

// Gives back what a failed round claimed. True when somebody else may have held blocks during the round that are free
// again: `rollbacks` is the count from before it. He counts before he stops claiming, so we look in the other order.
bool BlockSource::roll_back(size_t before, uint32_t rollbacks, BlockList *out) {
  bool any = out->size() > before;
  for (size_t i = before; i < out->size(); i++) state_->owners()[(*out)[i]].store(0, std::memory_order_release);
  out->resize(before);
  bool contended = others_claiming();
  contended |= state_->rollbacks.load(std::memory_order_acquire) != rollbacks;
  // Who had nothing to give back took nothing from anybody: on a full device the failing do not wait for each other.
  if (any) state_->rollbacks.fetch_add(1, std::memory_order_release);
  return contended;
}

void BlockSource::count_taken(uint32_t count) {
  DeviceSlot &books = state_->slots[slot_];
  if (books.held_blocks.load(std::memory_order_relaxed) == 0)
    books.holds_visibly_at_ns.store(now_ns() + state_->facts.visibility_ns, std::memory_order_relaxed);
  books.held_blocks.fetch_add(count, std::memory_order_release);  // the time is there before the count
}

bool BlockSource::take(uint32_t count, BlockUse use, BlockList *out) {
  if (count == 0) return true;
  DeviceSlot &books = state_->slots[slot_];
  size_t before = out->size();
  uint32_t word = owner_word(slot_, use);
  // A shortage counts only when nobody else was half-way through a claim, nor gave one up meanwhile: two clients that
  // together ask for too much must not both fail. A client stopped half-way can delay the verdict of the others by
  // these 50 ms, never block them.
  uint64_t deadline = 0;
  while (count <= state_->block_count) {
    uint32_t rollbacks = state_->rollbacks.load(std::memory_order_acquire);
    books.claiming.store(1, std::memory_order_seq_cst);
    if (claim_round(count, word, out)) {
      count_taken(count);
      books.claiming.store(0, std::memory_order_release);
      return true;
    }
    bool contended = roll_back(before, rollbacks, out);
    books.claiming.store(0, std::memory_order_release);
    if (!contended) break;
    uint64_t now = now_ns();
    if (deadline == 0) deadline = now + kPatienceNs;
    if (now >= deadline) break;
    timespec pause{0, 100000 + static_cast<long>(slot_ * 7919 % 400000)};
    nanosleep(&pause, nullptr);
  }
  return false;
}

void BlockSource::give(const BlockList &blocks, bool touched) {
  if (blocks.empty()) return;
  if (touched)
    for (uint32_t block : blocks) clear(block);
  for (uint32_t block : blocks) state_->owners()[block].store(0, std::memory_order_release);
  hint_ = blocks.front();
  state_->slots[slot_].held_blocks.fetch_sub(static_cast<uint32_t>(blocks.size()), std::memory_order_relaxed);
}

uint64_t BlockSource::free_bytes(const NodeState &node) const {
  uint64_t held = 0;
  uint32_t end = node.slot_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < end && i < kMaxProcesses; i++)
    held += state_->slots[i].held_blocks.load(std::memory_order_relaxed);
  return held < state_->block_count ? (state_->block_count - held) * kBlockBytes : 0;
}

void BlockSource::clear(uint32_t block) const { madvise(at(block), kBlockBytes, MADV_REMOVE); }

}  // namespace simgpu
