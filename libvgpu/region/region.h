// The shared accounting of one job on one node: create it, attach to it, charge device memory to it, look at it. How its
// files are opened, checked, swept and read may be changed in this folder alone; their layout is shared with every release
// that runs beside this one, and the protocol of accounting.h with tests/model.
//
//   Region::create(parent, name, spec)     the plugin, or a user for themselves, before any rank runs
//   Region::attach(directory, trust, &r)   a rank maps the region
//   Rank::attach(region, &rank)            ... and takes a slot in it
//   rank.try_to_reserve(dev, kind, bytes)  BEFORE the driver allocates: granted, or over the limit
//   rank.release(dev, kind, bytes)         AFTER the driver freed
//   rank.leave()                           at exit; a rank that never gets there is swept by the others
//   Snapshot::read(directory, trust, &s)   tools look without touching
//   change_limits / sweep_region           root steers and cleans
//
// Nobody ever waits for another rank, whatever that rank does: stopped, killed, forked or gone. docs/architecture.md
// says why; layout.h says where everything lies. This code knows neither CUDA nor Slurm and needs only libc.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "accounting.h"
#include "base/error.h"
#include "base/scoped.h"
#include "correct.h"
#include "layout.h"
#include "liveness.h"
#include "owner.h"
#include "seqlock.h"

namespace vgpu::region {

using RegionPath = char[256];

enum class Kind : std::uint8_t { context, module, data, other };

// What drivers take memory in, where nobody asked this one.
inline constexpr std::uint64_t kUsualBlock = 2 << 20;

// What a bare context takes on a device, and how anybody knows.
enum class ContextSource : std::uint8_t {
  unknown,
  cautious,  // a guess: more than contexts of such a device usually take
  measured,  // by root, or by a rank of this job
  site,      // the site said so, and wins
};
struct ContextFigure {
  std::uint64_t bytes = 0;
  ContextSource source = ContextSource::unknown;
};

ContextFigure known_context(const DeviceLimits &device);  // by root or the site; unknown in layout 1

struct DeviceSpec {
  DeviceIdentity identity = {};
  std::uint64_t memory_limit = 0;  // bytes
  std::uint32_t sm_percent = 100;
  ContextFigure context;
  std::uint64_t usable_bytes = 0;  // the device's memory without the driver's reserve; 0: not known
  std::uint64_t block_bytes = 0;   // what the driver takes memory in; 0: not known
};

struct RegionSpec {
  std::uint64_t job_id = 0;
  uid_t uid = 0;              // whose ranks write `usage`
  bool launch_hooks = false;  // see JobIdentity
  unsigned ndev = 0;
  const DeviceSpec *devices = nullptr;
};

class Region {
 public:
  // Puts `parent`/`name` in place in one step, or leaves nothing. Fault::exists: somebody else was first, attach to it.
  static Error create(const char *parent, const char *name, const RegionSpec &spec);
  static Error attach(const char *directory, Trust trust, Region *region);
  // Surviving ranks keep what they have mapped. A missing region is not an error.
  static Error remove(const char *parent, const char *name);

  unsigned ndev() const { return usage_.ndev(); }
  const JobIdentity &job() const { return limits().job; }
  const DeviceLimits &device(unsigned dev) const { return limits().devices[dev]; }
  const HalfWord &generation() const { return limits().generation; }
  const Usage &usage() const { return usage_; }
  UsagePath usage_path() const { return {directory_, usage_identity_}; }

  std::uint64_t memory_limit(unsigned dev) const;
  std::uint64_t memory_used(unsigned dev) const;   // exact: one load
  std::uint64_t block_bytes(unsigned dev) const;   // what the driver takes memory in
  std::uint64_t usable_bytes(unsigned dev) const;  // of the device, without the driver's reserve

 private:
  const LimitsFile &limits() const { return *static_cast<const LimitsFile *>(limits_mapping_.get()); }

  ScopedMapping limits_mapping_;  // read-only
  ScopedMapping usage_mapping_;   // shared with all ranks; inherited by forked children
  Usage usage_;
  FileIdentity usage_identity_;
  RegionPath directory_ = "";
};

enum class Grant : std::uint8_t {
  granted,
  refused,   // over the limit, and no dead rank holds any of it
  detached,  // this process has no slot: see Rank::trouble()
};

// A process's place in a region. All methods may be called by any thread, once attach() has been; devices are numbered
// as in the region. A forked child starts detached and takes a slot of its own at its first try_to_reserve().
//
// Only the end of the process ends its rank: what the driver holds for it, it holds until then.
class Rank {
 public:
  Rank() = default;
  ~Rank();  // leave(); the slot and its token stay
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  // `region` must outlive the rank.
  static Error attach(const Region &region, Rank *rank);

  // The caller may know what else to try. Only when nothing is left is it a refusal, which they then note.
  Grant try_to_reserve(unsigned dev, Kind kind, std::uint64_t bytes);
  void note_refusal(unsigned dev);
  // For memory that is there already and whose size was learned only now: charged whatever the limit says.
  Grant force(unsigned dev, Kind kind, std::uint64_t bytes);
  void release(unsigned dev, Kind kind, std::uint64_t bytes);
  // Gives back what was reserved for a call that failed, or guessed too high: it never was there, and is in no peak.
  void take_back(unsigned dev, Kind kind, std::uint64_t bytes);

  // The whole job's memory, without ranks that are gone: sweeps when somebody left or the last sweep is 100 ms old.
  std::uint64_t memory_used(unsigned dev);

  // What this process is charged, of every kind or of one. Contexts may be corrected by others at any time.
  std::uint64_t memory_held(unsigned dev) const;
  std::uint64_t memory_held(unsigned dev, Kind kind) const;

  // What a context is likely to take: what the site said, else what root measured, else what ranks of this job measured
  // last, else a cautious guess. Never 0.
  ContextFigure context_figure(unsigned dev) const;
  void note_context(unsigned dev, std::uint64_t bytes);
  // Around a call of the driver that makes or ends a context: in between nobody corrects what contexts are charged.
  void begin_context(unsigned dev);
  void end_context(unsigned dev);
  // One rank at a time makes a context whose size nobody knows, where there is little room. The lease ends by itself.
  bool take_probe(unsigned dev, unsigned ms);
  void end_probe(unsigned dev);
  // One rank at a time looks at NVML for all ranks of the job. True: for the next half second that is this one.
  bool lead_looking(unsigned dev);

  // Blocks of the driver that small allocations share. One is charged ahead: idle until the driver opens it. Charged as
  // Kind::other; given up before anybody of the job is refused, whatever their owner does at that moment.
  //   the driver opened a block:   use_idle(); false: none was idle, so reserve one or undo the call. Then top_up_idle().
  //   a block became empty:        add_idle()
  bool use_idle(unsigned dev, std::uint64_t block_bytes, bool *was_last = nullptr);
  void add_idle(unsigned dev, std::uint64_t block_bytes);     // at most two stay idle, the others are given back
  bool top_up_idle(unsigned dev, std::uint64_t block_bytes);  // false: the limit leaves no room for it
  std::uint64_t idle(unsigned dev) const;                     // bytes, this process's
  std::uint64_t give_up_idle(unsigned dev);                   // of all ranks of the job; how many bytes

  // Memory that this process made, exported, and is still charged for.
  // What of the others' memory this rank holds, where the driver counts that for both.
  void note_imported(unsigned dev, std::uint64_t bytes);
  std::uint64_t counted_twice(unsigned dev) const;
  void note_exported(unsigned dev, std::int64_t bytes);
  std::uint64_t exported_by_others(unsigned dev) const;

  void note_launches(unsigned dev, std::uint64_t launches);
  void note_throttled(unsigned dev, std::uint64_t nanoseconds);
  void note_host_pid(std::uint32_t pid);

  // Says that this process is about to exit. Frees nothing: the driver still holds the memory.
  void leave();

  unsigned slot() const;  // 0 when detached
  Error trouble() const;  // why this process is detached

 private:
  struct Process;

  Process *attached();
  Process *attach_again(std::uint64_t mine);
  Process *attach_now();
  struct Change {
    bool grow;
    std::uint64_t units;
    const Word *limit_bytes = nullptr;
    bool never_was = false;  // see take_back()
  };
  Commit change(Process &process, unsigned dev, Kind kind, const Change &change);
  void give_back(unsigned dev, Kind kind, const Change &shrinking);
  std::uint64_t held_units(const Process &process, unsigned dev) const;
  void raise_peaks(Process &process, unsigned dev, std::uint64_t total_units, std::uint64_t held_units,
                   std::uint64_t idle_units);
  Grant add(unsigned dev, Kind kind, std::uint64_t bytes, const Word *limit);
  SelfIdentity self();
  void sweep_device(unsigned dev, Effort effort);
  template <typename Update>
  void update_info(Process &process, Update update);

  const Region *region_ = nullptr;
  Process *process_ = nullptr;  // wiped by the kernel in a forked child
};

// ---- for tools ------------------------------------------------------------------------------------------------------

struct DeviceSnapshot {
  DeviceIdentity identity;
  std::uint64_t memory_limit;
  std::uint32_t sm_percent;
  ContextFigure context;        // what root or the site said
  std::uint64_t usable_bytes;   // 0: not known
  std::uint64_t block_bytes;    // the same
  std::uint64_t memory_used;    // exact: one word
  std::uint64_t memory_living;  // without ranks that are gone, if anybody asked who is
  std::uint64_t idle;           // of memory_used: blocks that no allocation uses, given up before anybody is refused
  bool ranks_add_up;            // the ranks' figures belong to the same instant as memory_used; else approximate
  std::uint64_t memory_peak;
  std::uint64_t refused;
  std::uint64_t exits;
  std::uint64_t launches;
  std::uint64_t throttled_ns;
  std::uint64_t charged_ns;  // see DeviceUsage
  std::uint64_t tat;         // the same
  std::uint64_t trim;        // the same
};

struct RankSnapshot {
  unsigned slot;
  OwnerWord owner;
  Verdict verdict;  // alive, if nobody asked for more than Detail::memory
  bool info_valid;  // false: its writer died or was stopped half-way
  InfoValues info;
};

enum class Detail : std::uint8_t {
  memory,
  tokens,    // also who is gone, as far as tokens tell: a system call for every rank
  liveness,  // also those whose token somebody else holds: ten times as much
};

// One look at a region, by pread alone: its user may truncate or scribble on the usage file at any moment.
class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot() { clear(); }
  Snapshot(const Snapshot &) = delete;
  Snapshot &operator=(const Snapshot &) = delete;

  // Replaces what was read before. `self`: identify_self(), of a caller who reads many regions.
  static Error read(const char *directory, Trust trust, Detail detail, Snapshot *snapshot,
                    const SelfIdentity *self = nullptr);

  const JobIdentity &job() const { return job_; }
  std::uint64_t created() const { return created_; }
  std::uint64_t taken_ns() const { return taken_ns_; }  // when it was read, of CLOCK_MONOTONIC
  unsigned ndev() const { return ndev_; }
  const DeviceSnapshot &device(unsigned dev) const { return devices_[dev]; }
  unsigned ranks() const { return rank_count_; }
  const RankSnapshot &rank(unsigned index) const { return ranks_[index]; }
  std::uint64_t memory(unsigned rank_index, unsigned dev, Kind kind) const;  // bytes
  // For settle_region(), see correct.h.
  const RestMark &mark(unsigned rank_index, unsigned dev) const { return marks_[rank_index * ndev_ + dev]; }

 private:
  void clear();
  void discount(unsigned rank_index);  // it is gone
  Error decode(const class UsageReader &reader, const struct RegionFiles &files, const DeviceLimits *limits);

  JobIdentity job_ = {};
  std::uint64_t created_ = 0;
  std::uint64_t taken_ns_ = 0;
  unsigned ndev_ = 0;
  unsigned rank_count_ = 0;
  DeviceSnapshot *devices_ = nullptr;
  RankSnapshot *ranks_ = nullptr;
  std::uint64_t *units_ = nullptr;  // [rank][device][kind]
  RestMark *marks_ = nullptr;       // [rank][device]
};

struct LimitChange {
  static constexpr std::uint64_t kKeepMemory = ~std::uint64_t{0};
  static constexpr std::uint32_t kKeepSm = ~std::uint32_t{0};

  unsigned dev = kAllDevices;
  std::uint64_t memory_limit = kKeepMemory;
  std::uint32_t sm_percent = kKeepSm;
};

// For root, or the owner of a private region. When it returns, no later try_to_reserve() succeeds under the old limit.
// The limits are in a file of root's: `damage` is set when they are changed, and the user's own file is beyond repair.
// Without it, that is an error.
Error change_limits(const char *directory, Trust trust, const LimitChange &change, Error *damage = nullptr);
// Gives back what dead ranks hold, in every slot. `reclaimed` may be null.
Error sweep_region(const char *directory, Trust trust, unsigned *reclaimed);
// Corrects what living ranks are charged for contexts, see correct.h. `corrected` may be null.
Error settle_region(const char *directory, Trust trust, unsigned dev, const SeenRank *seen, unsigned count,
                    unsigned *corrected);

}  // namespace vgpu::region
