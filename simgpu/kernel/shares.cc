#include "simgpu/kernel/shares.h"

#include <sys/mman.h>

namespace simgpu {

uint64_t Shares::add(uint32_t slot, Share share) {
  share.owner = slot;
  share.holders = {slot};
  uint64_t id = next_id_++;
  shares_.emplace(id, std::move(share));
  return id;
}

Shares::Share *Shares::find(uint64_t id) {
  auto it = shares_.find(id);
  return it == shares_.end() ? nullptr : &it->second;
}

void Shares::drop(uint64_t id, uint32_t slot) {
  Share *share = find(id);
  if (share == nullptr) return;
  auto it = share->holders.find(slot);
  if (it != share->holders.end()) share->holders.erase(it);
  settle(id);
}

void Shares::descriptor_closed(uint64_t id) {
  Share *share = find(id);
  if (share == nullptr) return;
  share->descriptors--;
  settle(id);
}

void Shares::process_gone(uint32_t slot) {
  std::vector<uint64_t> touched;
  for (auto &[id, share] : shares_)
    if (share.holders.erase(slot) != 0 || share.owner == slot) touched.push_back(id);
  for (uint64_t id : touched) settle(id);
}

void Shares::count_importers(Share *share) {
  std::set<uint32_t> now(share->holders.begin(), share->holders.end());
  now.erase(share->owner);
  DeviceState *device = devices_[share->device];
  auto count = static_cast<uint32_t>(share->blocks.size());
  for (uint32_t slot : share->importers)
    if (now.count(slot) == 0) device->slots[slot].imported_blocks.fetch_sub(count, std::memory_order_relaxed);
  for (uint32_t slot : now)
    if (share->importers.count(slot) == 0)
      device->slots[slot].imported_blocks.fetch_add(count, std::memory_order_relaxed);
  share->importers = std::move(now);
}

// Frees the object when nobody holds it, else moves it to a holder when its owner does not hold it any more. Kept alive by
// descriptors alone it stays with slot 0, the kernel process's own.
void Shares::settle(uint64_t id) {
  Share &share = shares_.at(id);
  DeviceState *device = devices_[share.device];
  auto count = static_cast<uint32_t>(share.blocks.size());
  if (share.holders.empty() && share.descriptors <= 0) {
    for (uint32_t block : share.blocks) {
      madvise(bytes_[share.device] + block * kBlockBytes, kBlockBytes, MADV_REMOVE);
      device->owners()[block].store(0, std::memory_order_release);
    }
    device->slots[share.owner].held_blocks.fetch_sub(count, std::memory_order_relaxed);
    count_importers(&share);
    shares_.erase(id);
    return;
  }
  uint32_t heir = share.holders.empty() ? 0 : *share.holders.begin();
  if (share.holders.count(share.owner) != 0) heir = share.owner;
  if (heir == share.owner) return count_importers(&share);
  for (uint32_t block : share.blocks) {
    uint32_t word = device->owners()[block].load(std::memory_order_relaxed);
    device->owners()[block].store(owner_word(heir, owner_use(word)), std::memory_order_relaxed);
  }
  device->slots[heir].held_blocks.fetch_add(count, std::memory_order_relaxed);
  device->slots[share.owner].held_blocks.fetch_sub(count, std::memory_order_relaxed);
  share.owner = heir;
  count_importers(&share);
}

}  // namespace simgpu
