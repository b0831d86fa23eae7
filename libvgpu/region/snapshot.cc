// Snapshot::read: one picture of a region, decoded for people.
#include <fcntl.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "files.h"
#include "region.h"
#include "usage_reader.h"

namespace vgpu::region {

namespace {

DeviceSnapshot decode_device(const UsageReader &reader, const DeviceLimits &limits, unsigned dev) {
  const DeviceUsage &usage = reader.view().device(dev);
  DeviceSnapshot device;
  const std::uint64_t used = DeviceWord::unpack(reader.total(dev)).units;
  std::uint64_t idle = 0;
  for (unsigned slot = 1; slot < kSlots; ++slot) {
    if (reader.is_in_use(slot)) idle += std::min(reader.idle_units(slot, dev), used - idle);
  }
  // The word is raised by whoever gives back; what is there now may be the most there ever was.
  const std::uint64_t peak = std::max(used - idle, usage.peak_units.load(std::memory_order_relaxed) & kMaxUnits);
  device.identity = limits.identity;
  device.memory_limit = limits.memory_bytes.load(std::memory_order_acquire);
  device.sm_percent = limits.sm_percent.load(std::memory_order_acquire);
  device.context = known_context(limits);
  device.usable_bytes = limits.usable_bytes.load(std::memory_order_relaxed);
  device.block_bytes = limits.block_bytes.load(std::memory_order_relaxed);
  device.memory_used = bytes_of(used);
  device.memory_living = device.memory_used;
  device.idle = bytes_of(idle);
  device.ranks_add_up = reader.adds_up(dev);
  device.memory_peak = bytes_of(peak);
  device.refused = usage.refused.load(std::memory_order_relaxed);
  device.exits = usage.exits.load(std::memory_order_relaxed);
  device.launches = usage.launches.load(std::memory_order_relaxed);
  device.throttled_ns = usage.throttled_ns.load(std::memory_order_relaxed);
  device.charged_ns = usage.charged_ns.load(std::memory_order_relaxed);
  device.tat = usage.tat.load(std::memory_order_relaxed);
  device.trim = usage.trim.load(std::memory_order_relaxed);
  return device;
}

template <typename T>
T *allocate(std::size_t count) {
  return static_cast<T *>(std::calloc(std::max<std::size_t>(count, 1), sizeof(T)));
}

}  // namespace

void Snapshot::clear() {
  std::free(devices_);
  std::free(ranks_);
  std::free(units_);
  std::free(marks_);
  devices_ = nullptr;
  ranks_ = nullptr;
  units_ = nullptr;
  marks_ = nullptr;
  ndev_ = 0;
  rank_count_ = 0;
}

Error Snapshot::read(const char *directory, Trust trust, Detail detail, Snapshot *snapshot, const SelfIdentity *self) {
  snapshot->clear();
  RegionFiles files;
  if (Error error = open_region(directory, trust, O_RDONLY, &files)) return error;
  const unsigned ndev = files.header.ndev;
  // `limits` is root's: nobody can truncate it under our mapping.
  const ScopedMapping mapping(files.limits.get(), limits_size(ndev), PROT_READ);
  if (!mapping) return system_error("cannot map %s/limits", directory);
  UsageReader reader(files.usage.get(), ndev, files.header.layout);
  if (!reader.read()) {
    return make_error(Fault::truncated, "%s/usage was truncated while it was read", directory);
  }
  snapshot->taken_ns_ = monotonic_ns();
  const auto &limits = *static_cast<const LimitsFile *>(mapping.get());
  if (Error error = snapshot->decode(reader, files, limits.devices)) return error;
  if (detail != Detail::memory) {
    const Effort effort = detail == Detail::liveness ? Effort::thorough : Effort::tokens;
    LivenessCheck liveness({directory, files.usage_identity}, reader.view(), effort,
                           self != nullptr ? *self : identify_self());
    for (unsigned i = 0; i < snapshot->rank_count_; ++i) {
      RankSnapshot &rank = snapshot->ranks_[i];
      rank.verdict = liveness.examine(rank.slot, rank.owner.pack());
      if (rank.verdict != Verdict::alive) snapshot->discount(i);
    }
  }
  return {};
}

Error Snapshot::decode(const UsageReader &reader, const RegionFiles &files, const DeviceLimits *limits) {
  const unsigned ndev = files.header.ndev;
  unsigned ranks = 0;
  for (unsigned slot = 1; slot < kSlots; ++slot) ranks += reader.is_in_use(slot);
  devices_ = allocate<DeviceSnapshot>(ndev);
  ranks_ = allocate<RankSnapshot>(ranks);
  units_ = allocate<std::uint64_t>(std::size_t{ranks} * ndev * kKinds);
  marks_ = allocate<RestMark>(std::size_t{ranks} * ndev);
  if (devices_ == nullptr || ranks_ == nullptr || units_ == nullptr || marks_ == nullptr) {
    clear();
    return system_error("no memory for a snapshot");
  }
  job_ = files.job;
  created_ = files.header.created;
  ndev_ = ndev;
  for (unsigned dev = 0; dev < ndev; ++dev) {
    devices_[dev] = decode_device(reader, limits[dev], dev);
    const bool is_held = job_.launch_hooks != 0 && devices_[dev].sm_percent < 100;
    devices_[dev].feedback = is_held ? reader.feedback(dev) : FeedbackState::not_asked;
  }
  std::uint64_t *units = units_;
  RestMark *marks = marks_;
  for (unsigned slot = 1; slot < kSlots; ++slot) {
    if (!reader.is_in_use(slot)) continue;
    RankSnapshot &rank = ranks_[rank_count_++];
    rank.slot = slot;
    rank.owner = OwnerWord::unpack(reader.owner(slot));
    rank.verdict = Verdict::alive;
    rank.info_valid = reader.info(slot, &rank.info);
    for (unsigned dev = 0; dev < ndev; ++dev) {
      *marks++ = mark_rest(reader.view(), dev, slot);
      std::uint64_t held = 0;
      for (unsigned kind = 0; kind < kKinds; ++kind) held += *units++ = reader.units(slot, dev, kind);
      // As for the device's peak.
      held -= std::min(held, reader.idle_units(slot, dev));
      rank.info.peak_units = std::max(rank.info.peak_units, held);
    }
  }
  return {};
}

void Snapshot::discount(unsigned rank_index) {
  for (unsigned dev = 0; dev < ndev_; ++dev) {
    std::uint64_t &living = devices_[dev].memory_living;
    for (unsigned kind = 0; kind < kKinds; ++kind) {
      living -= std::min(living, memory(rank_index, dev, static_cast<Kind>(kind)));
    }
  }
}

std::uint64_t Snapshot::memory(unsigned rank_index, unsigned dev, Kind kind) const {
  return bytes_of(units_[(rank_index * ndev_ + dev) * kKinds + static_cast<unsigned>(kind)]);
}

}  // namespace vgpu::region
