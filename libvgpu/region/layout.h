// What the two files of a region that ranks map look like, byte for byte, and who may write which word. (The third,
// `lock`, has no content.)
//
//   limits   root's; ranks map it read-only.       header | job | generation | one DeviceLimits per device
//   usage    the job user's; ranks map it shared.  header | claim hint | PID namespaces | owners | suspects
//                                                  | one DeviceUsage per device | 512 slots of (1 + ndev) lines
//                                                  | appendix: one DeviceMore per device | 512 SlotMore of (1 + ndev) lines
//
// A usage file that is all zeroes behind its header is a valid, empty region.
//
// Layout 1 ends with the slots, and its limits are zero where layout 2 has fields. No word of layout 1 ever moved: jobs that
// were started before an update end with the files they have, and old and new ranks share them by the same protocol.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "words.h"

namespace vgpu::region {

// A cache line: what is written by different ranks never shares one. Part of the format, so the same for every compiler
// and machine; a core with longer lines (some ARM cores have 128 bytes) loses time, nothing else. Nothing here depends on
// the size of a page either: files are mapped whole, from their start.
inline constexpr std::size_t kLine = 64;
inline constexpr std::uint32_t kLayoutVersion = 2;  // what is created
inline constexpr std::uint32_t kOldestLayout = 1;   // what is still read, and shared with ranks that know no other
inline constexpr unsigned kMaxDevices = 64;
inline constexpr unsigned kAllDevices = ~0u;  // where a device number is asked for
inline constexpr unsigned kNamespaces = 16;
inline constexpr unsigned kUnknownNamespace = kNamespaces - 1;

using Word = std::atomic<std::uint64_t>;
using HalfWord = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);
static_assert(HalfWord::is_always_lock_free && sizeof(HalfWord) == 4);

// The first line of both files. Frozen: every release can read the header of every other release.
struct FileHeader {
  char magic[8];
  std::uint32_t layout;
  std::uint32_t ndev;
  std::uint64_t file_size;
  std::uint32_t slots;
  std::uint32_t reserved;
  std::uint8_t id[16];     // random, the same in both files of a region
  std::uint64_t checksum;  // over all that never changes after creation
  std::uint64_t created;   // seconds since the epoch
};
static_assert(sizeof(FileHeader) == kLine);
static_assert(offsetof(FileHeader, layout) == 8 && offsetof(FileHeader, ndev) == 12);
static_assert(offsetof(FileHeader, file_size) == 16 && offsetof(FileHeader, slots) == 24);
static_assert(offsetof(FileHeader, id) == 32 && offsetof(FileHeader, checksum) == 48);

inline constexpr char kLimitsMagic[8] = {'v', 'g', 'p', 'u', 'L', 'I', 'M', '\n'};
inline constexpr char kUsageMagic[8] = {'v', 'g', 'p', 'u', 'U', 'S', 'E', '\n'};

// ---- limits ---------------------------------------------------------------------------------------------------------

struct DeviceIdentity {  // written once, at creation
  char uuid[64];         // "GPU-..." or "MIG-..."
  char pci_bus_id[32];
  std::uint64_t memory_bytes;  // what the device has
  std::int32_t numa_node;      // -1: unknown
  std::uint32_t context_mib;   // what a context takes, as it was known at creation; 0: not known. For tools of layout 1
  char cpuset[784];            // the cores near the device, as a list: "0-31,64-95"
};
static_assert(sizeof(DeviceIdentity) == 896);

struct alignas(kLine) DeviceLimits {
  Word memory_bytes;    // root, under the OFD lock on the file `lock`; ranks read it after the device word
  HalfWord sm_percent;  // root, same lock; 100 = no limit; ranks read it with every grant

  // Of layout 2. Root, relaxed: numbers of their own. 0, as in all files of layout 1, is "not known".
  HalfWord reserved;
  Word context;       // see ContextWord: what a bare context takes
  Word block_bytes;   // what the driver takes memory in
  Word usable_bytes;  // the device's memory without the driver's reserve
  Word reserved_words[3];
  alignas(kLine) DeviceIdentity identity;
};
static_assert(sizeof(DeviceLimits) == 960 && offsetof(DeviceLimits, identity) == 64);
static_assert(offsetof(DeviceLimits, context) == 16 && offsetof(DeviceLimits, usable_bytes) == 32);

struct JobIdentity {  // written once, at creation
  std::uint64_t job_id;
  std::uint32_t uid;
  std::uint32_t launch_hooks;  // the job's ranks hook kernel launches, so that an SM limit can be set
};
static_assert(sizeof(JobIdentity) == 16);

struct LimitsFile {
  FileHeader header;
  alignas(kLine) JobIdentity job;
  alignas(kLine) HalfWord generation;      // root adds one after every live change; ranks may futex-wait on it
  alignas(kLine) DeviceLimits devices[1];  // ndev of them
};
static_assert(offsetof(LimitsFile, job) == 64 && offsetof(LimitsFile, generation) == 128);
static_assert(offsetof(LimitsFile, devices) == 192);

constexpr std::size_t limits_size(unsigned ndev) { return offsetof(LimitsFile, devices) + ndev * sizeof(DeviceLimits); }

// ---- usage ----------------------------------------------------------------------------------------------------------

struct alignas(kLine) DeviceUsage {
  Word total;  // device word: any rank, reclaimer or root, only by the CAS in commit()

  // Any rank; never reset. Read on every allocation, written rarely.
  alignas(kLine) Word peak_units;  // only grows, by CAS
  Word refused;                    // allocations refused because of the limit
  Word exits;                      // ranks that left in good order while they held memory here
  Word context_units;              // what a context took when last measured; a hint, never trusted

  // The SM limiter's (libvgpu/sm). A line of its own: ranks that launch kernels write it. Hints but for `tat`: whatever is
  // found here, a launch waits a bounded time and then looks again.
  alignas(kLine) Word tat;  // GCRA's theoretical arrival time (sm/bucket.h), ns of CLOCK_MONOTONIC; any rank, by CAS
  Word trim;                // ratio:31 | shared:1 | epoch:32; the elected rank alone, by CAS while the epoch is its own
  Word lease;         // stamp:36 | epoch:19 | slot:9 of the elected rank; renewed by it, taken over when old, by CAS
  Word throttled_ns;  // any rank; only grows
  Word launches;      // any rank; only grows, in batches
  Word charged_ns;    // any rank: the GPU time for which launches were let through, put right when they are done
  Word reserved;      // earlier releases wrote it
  Word contenders;    // any rank, by CAS: how many ranks have launched lately
};
static_assert(sizeof(DeviceUsage) == 3 * kLine && offsetof(DeviceUsage, tat) == 2 * kLine);

struct Lane {
  Word current;  // applied by the owner, by a store; by any helper of its operation and by reclaimers, only by CAS
  Word next;     // published by the owner under its private mutex; by reclaimers, once it is dead, by CAS
};

// One rank's memory on one device, by kind.
struct alignas(kLine) SlotLanes {
  Lane kinds[kKinds];
};
static_assert(sizeof(SlotLanes) == kLine);

// For display only. One writer, the slot's rank, under its private mutex; see seqlock.h.
struct alignas(kLine) SlotInfo {
  Word seq;
  Word start_time;  // clock ticks since boot, in full
  Word host_pid;    // 0: unknown
  Word launches;
  Word throttled_ns;
  Word refused;
  Word peak_units;  // the most this rank held on one device
  Word reserved;
};
static_assert(sizeof(SlotInfo) == kLine);

struct UsageFile {
  FileHeader header;
  alignas(kLine) HalfWord claim_hint;           // any attacher or reclaimer; a hint, never trusted
  alignas(kLine) Word namespaces[kNamespaces];  // see SelfIdentity; append-only, by CAS from 0
  alignas(kLine) Word owners[kSlots];           // claimed by the attacher, given back by a reclaimer, by CAS
  alignas(kLine) Word suspects[kSlots];         // any sweeper; cleared by the attacher
  alignas(kLine) DeviceUsage devices[1];        // ndev of them, then the slots
};
static_assert(offsetof(UsageFile, claim_hint) == 64 && offsetof(UsageFile, namespaces) == 128);
static_assert(offsetof(UsageFile, owners) == 256 && offsetof(UsageFile, suspects) == 4352);
static_assert(offsetof(UsageFile, devices) == 8448);

constexpr std::size_t slots_offset(unsigned ndev) { return offsetof(UsageFile, devices) + ndev * sizeof(DeviceUsage); }
constexpr std::size_t slot_size(unsigned ndev) { return (1 + ndev) * kLine; }
constexpr std::size_t slot_offset(unsigned ndev, unsigned slot) { return slots_offset(ndev) + slot * slot_size(ndev); }
constexpr std::size_t lanes_offset(unsigned ndev, unsigned slot, unsigned dev) {
  return slot_offset(ndev, slot) + (1 + dev) * kLine;
}

// ---- usage: the appendix of layout 2 --------------------------------------------------------------------------------

// Any rank, by CAS. When the job had work on the device lately, see sm/coverage.h. Relaxed: each word is a number of its
// own. Whatever is found here, time is charged at most once and at least nothing.
inline constexpr unsigned kCoverageWords = 512;
struct alignas(kLine) CoverageWords {
  Word words[kCoverageWords];  // epoch:16 | a bit for each of 48 quanta
};

struct alignas(kLine) DeviceMore {
  // Leases, see lease.h: any rank, by CAS. Hints, relaxed: whoever believes a wild one looks too often or not at all.
  Word looker;  // which rank looks at NVML for all ranks
  Word prober;  // which rank makes a context whose size nobody knows
  // Whether NVML corrects what launches are charged, see FeedbackState: the rank that the SM limiter elected, by a relaxed
  // store. A number of its own that orders nothing; for display alone, nobody acts upon it.
  Word feedback;
  Word reserved[5];
  // The SM limiter's (libvgpu/sm).
  alignas(kLine) Word pace;  // cost:32 | charged:32, any rank, by CAS; a hint of how far launches overlap
  Word reserved_pace[7];
  CoverageWords coverage;
  Word reserved_lines[62][8];  // room for what later releases share, without another layout
};
static_assert(sizeof(DeviceMore) == 128 * kLine && offsetof(DeviceMore, feedback) == 16);

// One rank's, on one device.
struct alignas(kLine) SlotMore {
  Word guards[2];       // see guard.h; by Guarded
  Word exported_units;  // the owner alone: what it has shared with others and is still charged for
  Word imported_units;  // the owner alone: what others made, it holds too, and the driver counts for both; else 0
  Word reserved[4];
};
static_assert(sizeof(SlotMore) == kLine);

// As in the slots, there is one line for the slot itself before those of the devices; it is not used yet.
constexpr std::size_t appendix_offset(unsigned ndev) { return slot_offset(ndev, kSlots); }
constexpr std::size_t slots_more_offset(unsigned ndev) { return appendix_offset(ndev) + ndev * sizeof(DeviceMore); }
constexpr std::size_t slot_more_offset(unsigned ndev, unsigned slot, unsigned dev) {
  return slots_more_offset(ndev) + slot * slot_size(ndev) + (1 + dev) * kLine;
}
constexpr std::size_t usage_size(unsigned ndev, std::uint32_t layout = kLayoutVersion) {
  return layout == 1 ? appendix_offset(ndev) : slots_more_offset(ndev) + kSlots * slot_size(ndev);
}

// A mapped (or copied) usage file. `ndev` and `layout` come from `limits`, never from the user's own file. Passed by value on
// hot paths: it stays in two registers, where behind a reference it would be read again after every atomic.
class Usage {
 public:
  Usage() = default;
  Usage(void *base, unsigned ndev, std::uint32_t layout = kLayoutVersion)
      : base_(static_cast<char *>(base)), ndev_(ndev), layout_(layout) {}

  unsigned ndev() const { return ndev_; }
  bool has_appendix() const { return layout_ > 1; }
  // Only with an appendix.
  DeviceMore &device_more(unsigned dev) const {
    return reinterpret_cast<DeviceMore *>(base_ + appendix_offset(ndev_))[dev];
  }
  SlotMore &slot_more(unsigned slot, unsigned dev) const {
    return *reinterpret_cast<SlotMore *>(base_ + slot_more_offset(ndev_, slot, dev));
  }
  DeviceUsage &device(unsigned dev) const { return file().devices[dev]; }
  Word &owner(unsigned slot) const { return file().owners[slot]; }
  Word &suspect(unsigned slot) const { return file().suspects[slot]; }
  Word &pid_namespace(unsigned index) const { return file().namespaces[index]; }
  HalfWord &claim_hint() const { return file().claim_hint; }
  SlotInfo &info(unsigned slot) const { return *reinterpret_cast<SlotInfo *>(base_ + slot_offset(ndev_, slot)); }
  SlotLanes &lanes(unsigned slot, unsigned dev) const {
    return *reinterpret_cast<SlotLanes *>(base_ + lanes_offset(ndev_, slot, dev));
  }
  Lane &lane(std::uint64_t lane, unsigned dev) const {
    return lanes(static_cast<unsigned>(lane / kKinds), dev).kinds[lane % kKinds];
  }

 private:
  UsageFile &file() const { return *reinterpret_cast<UsageFile *>(base_); }

  char *base_ = nullptr;
  unsigned ndev_ = 0;
  std::uint32_t layout_ = kLayoutVersion;
};

constexpr std::uint64_t lane_number(unsigned slot, unsigned kind) { return slot * kKinds + kind; }

}  // namespace vgpu::region
