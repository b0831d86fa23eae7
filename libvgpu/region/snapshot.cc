// Snapshot::read: one picture of a region, decoded for people.
#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "files.h"
#include "region.h"
#include "usage_reader.h"

namespace vgpu {

Snapshot::~Snapshot() {
  std::free(devices_);
  std::free(ranks_);
  std::free(usage_copy_);
}

Error Snapshot::read(const char *directory, Trust trust, Snapshot *snapshot) {
  if (std::strlen(directory) >= sizeof snapshot->directory_) {
    return make_error(Fault::invalid, "vgpu: the region path is longer than %zu bytes",
                      sizeof snapshot->directory_ - 1);
  }
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDONLY, O_RDONLY, &files)) return error;
  // `limits` is root's: nobody can truncate it under our mapping.
  const ScopedMapping mapping(files.limits.get(), limits_size(files.ndev), PROT_READ);
  if (!mapping) return system_error("vgpu: cannot map %s/limits", directory);
  const auto &limits = *static_cast<const LimitsFile *>(mapping.get());

  std::strcpy(snapshot->directory_, directory);
  snapshot->usage_identity_ = files.usage_identity;
  snapshot->job_ = limits.job;
  snapshot->created_ = limits.header.created;
  snapshot->ndev_ = files.ndev;
  snapshot->usage_copy_ = std::calloc(1, usage_size(files.ndev));
  snapshot->devices_ = static_cast<DeviceSnapshot *>(std::calloc(files.ndev, sizeof(DeviceSnapshot)));
  snapshot->ranks_ = static_cast<RankSnapshot *>(std::calloc(kSlots, sizeof(RankSnapshot)));
  if (snapshot->usage_copy_ == nullptr || snapshot->devices_ == nullptr || snapshot->ranks_ == nullptr) {
    return system_error("vgpu: no memory for a snapshot");
  }
  UsageReader reader(files.usage.get(), files.ndev, snapshot->usage_copy_);
  if (!reader.read()) {
    return make_error(Fault::truncated, "vgpu: %s/usage was truncated while it was read", directory);
  }
  for (unsigned dev = 0; dev < files.ndev; ++dev) snapshot->decode_device(reader, limits.devices[dev], dev);
  for (unsigned slot = 1; slot < kSlots; ++slot) snapshot->decode_rank(reader, slot);
  return {};
}

void Snapshot::decode_device(const UsageReader &reader, const DeviceLimits &limits, unsigned dev) {
  const DeviceUsage &usage = this->usage().device(dev);
  DeviceSnapshot &device = devices_[dev];
  const std::uint64_t used = DeviceWord::unpack(reader.total(dev)).units;
  // A rank that died before it could raise the peak leaves it behind the total.
  const std::uint64_t peak = std::max(used, usage.peak_units.load(std::memory_order_relaxed) & kMaxUnits);
  device.identity = limits.identity;
  device.memory_limit = limits.memory_bytes.load(std::memory_order_acquire);
  device.sm_percent = limits.sm_percent.load(std::memory_order_acquire);
  device.memory_used = bytes_of(used);
  device.ranks_add_up = reader.adds_up(dev);
  device.memory_peak = bytes_of(peak);
  device.refused = usage.refused.load(std::memory_order_relaxed);
  device.exits = usage.exits.load(std::memory_order_relaxed);
  device.launches = usage.launches.load(std::memory_order_relaxed);
  device.throttled_ns = usage.throttled_ns.load(std::memory_order_relaxed);
}

void Snapshot::decode_rank(const UsageReader &reader, unsigned slot) {
  const OwnerWord owner = OwnerWord::unpack(reader.owner(slot));
  if (owner.state == OwnerWord::kFree) return;
  RankSnapshot &rank = ranks_[rank_count_++];
  rank.slot = slot;
  rank.owner = owner;
  rank.verdict = Verdict::alive;
  rank.info_valid = reader.info(slot, &rank.info);
  // The lanes themselves become what they count for; nothing else will read them.
  for (unsigned dev = 0; dev < ndev_; ++dev) {
    std::uint64_t units[kKinds];
    for (unsigned kind = 0; kind < kKinds; ++kind) units[kind] = reader.units(slot, dev, kind);
    for (unsigned kind = 0; kind < kKinds; ++kind) {
      usage().lanes(slot, dev).kinds[kind].current.store(units[kind], std::memory_order_relaxed);
    }
  }
}

void Snapshot::judge_ranks() {
  Prober prober({directory_, usage_identity_}, usage());
  for (unsigned i = 0; i < rank_count_; ++i) {
    ranks_[i].verdict = prober.examine(ranks_[i].slot, ranks_[i].owner.pack());
  }
}

std::uint64_t Snapshot::memory(unsigned rank_index, unsigned dev, Kind kind) const {
  const SlotLanes &lanes = usage().lanes(ranks_[rank_index].slot, dev);
  return bytes_of(lanes.kinds[static_cast<unsigned>(kind)].current.load(std::memory_order_relaxed));
}

}  // namespace vgpu
