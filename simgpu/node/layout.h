// What the processes of one simulated node share. Two kinds of shared memory, all made by the node's "kernel" process and
// handed out as file descriptors, so nothing is left behind when the node ends:
//   NodeState    one per node, written by the kernel process alone; says which slot belongs to which host PID.
//   DeviceState  one per device, written by every client; the owner words in it are the truth about who holds memory.
// A device's bytes live in a third, sparse mapping per device. Devices share nothing, so a ruined one harms no other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "simgpu/node/schedule.h"

namespace simgpu {

constexpr uint32_t kMagic = 0x53475055;  // "SGPU"
constexpr uint32_t kLayoutVersion = 10;
constexpr unsigned kMaxDevices = 16;
constexpr unsigned kMaxMemoryLimits = 64;
constexpr unsigned kMaxKernelRules = 16;
constexpr uint64_t kBlockBytes = 2ull << 20;
constexpr uint64_t kLargestBlockBytes = 16ull << 20;

// Why a block of device memory is held. Only for the operator's view; it decides nothing.
enum class BlockUse : uint32_t {
  kContext,
  kModule,
  kLinear,
  kArray,
  kManaged,
  kPool,
  kVmm,
  kGraph,
  kHeap,
  kExternal,
  kCode,  // of functions, which comes with their first launch
  kCount
};

// How long a kernel takes: `base_ns`, and `wave_ns` for every block that an SM has to run one after the other.
struct KernelTime {
  uint64_t base_ns;
  uint64_t wave_ns;
};

// For kernels of a name, or whose names begin with what is before a final '*'.
struct KernelRule {
  char name[80];
  KernelTime time;
};

// What the node's description says about a device. Fixed while the node lives.
struct DeviceFacts {
  char name[96];
  char serial[32];
  uint8_t uuid[16];
  uint32_t pci_domain, pci_bus, pci_device;
  uint32_t sm_count;
  uint32_t compute_major, compute_minor;
  uint32_t clock_mhz, memory_clock_mhz, bus_width;
  uint32_t minor;
  uint64_t memory_bytes;    // what NVML calls total
  uint64_t reserved_bytes;  // never available to any process
  uint64_t context_bytes;   // what one context costs
  uint64_t module_bytes;    // what a loaded module costs beyond its own image and variables
  uint64_t pool_chunk_bytes;
  uint64_t visibility_ns;  // how long a new process stays out of NVML's lists
  KernelTime kernel_time;  // of kernels that no rule names
  uint32_t kernel_rule_count;
  KernelRule kernel_rules[kMaxKernelRules];
  uint32_t queue_depth;         // launches that a process can have pending; further ones wait
  uint64_t slice_ns;            // how long a process has the device while others want it
  uint64_t utilisation_lag_ns;  // from the end of a window to the moment NVML's samples show it
  uint64_t launch_ns;           // what a launch costs its caller
  uint64_t event_ns;            // what recording an event with a time costs its caller
  uint64_t doorbell_ns;         // from a launch to the moment the device has it
  uint64_t event_lag_ns;        // from the end of work to the moment its process can see it
  uint64_t function_bytes;      // what a function takes when it is first needed
  uint64_t function_ns;         // and how long loading it takes
  uint64_t block_bytes;         // what allocations are rounded up to; a multiple of kBlockBytes
  uint32_t concurrent_kernels;  // of a process, where the SMs suffice; at most kMaxRunning
  uint32_t local_memory_grows;  // with the stack, by as many threads as can be resident
  uint32_t capture_strict;      // looking at streams and events is unsafe during a capture
};

// What one process does on one device. Written by that process, zeroed by the kernel process when it is gone.
struct alignas(64) DeviceSlot {
  std::atomic<uint32_t> held_blocks;
  std::atomic<uint32_t> contexts;
  std::atomic<uint32_t> claiming;       // 1 while an allocation is between its first and last block
  std::atomic<uint64_t> visible_at_ns;  // CLOCK_MONOTONIC; 0 while there is no context
  // When the blocks it holds make it visible, with a context or without: pools and handles outlive contexts.
  std::atomic<uint64_t> holds_visibly_at_ns;
  std::atomic<uint64_t> launches;
  // Of shared memory that is another process's, and that this one holds, too; written by the kernel process.
  std::atomic<uint32_t> imported_blocks;
};

// What `broken` says of a device: it works; it refuses every call for now; it fell off the bus.
constexpr uint32_t kDeviceOk = 0, kDeviceBroken = 1, kDeviceLost = 2;

// An owner word is 0 for a free block, else slot + 1 in the low half and the BlockUse in the high half.
struct DeviceState {
  uint32_t magic;
  uint32_t version;
  uint32_t index;
  uint32_t block_count;
  DeviceFacts facts;
  alignas(64) std::atomic<uint32_t> broken;
  std::atomic<uint32_t> rollbacks;  // failed claims that gave blocks back
  DeviceSlot slots[kMaxProcesses];
  DeviceSchedule schedule;
  std::atomic<uint32_t> *owners() { return reinterpret_cast<std::atomic<uint32_t> *>(this + 1); }
};

constexpr uint32_t owner_word(unsigned slot, BlockUse use) { return (slot + 1) | static_cast<uint32_t>(use) << 16; }
constexpr unsigned owner_slot(uint32_t word) { return (word & 0xffff) - 1; }
constexpr BlockUse owner_use(uint32_t word) { return static_cast<BlockUse>(word >> 16); }
inline size_t device_state_bytes(uint32_t blocks) { return sizeof(DeviceState) + blocks * sizeof(uint32_t); }

struct ProcessSlot {
  std::atomic<uint32_t> alive;
  std::atomic<uint32_t> generation;  // changes whenever the slot changes hands
  int32_t host_pid;
  uint32_t uid;
  uint32_t is_cuda;  // NVML-only clients have a slot too, but are no GPU processes
  uint64_t connected_ns;
  char cgroup[256];
  // Of its calls; written by the process itself, and only where the node counts them: see counted_call.h.
  alignas(64) std::atomic<uint64_t> calls;  // entered
  std::atomic<uint64_t> returned;           // never more than calls
};

struct MemoryLimit {
  uint32_t in_use;
  uint32_t device;
  uint64_t soft_bytes;
  uint64_t hard_bytes;
  char cgroup[256];
};

// How NVML calls processes, and what it says of their memory.
enum class NvmlPids : uint32_t { kHost, kNamespace, kMixed, kForeign };
enum class NvmlBytes : uint32_t { kExact, kZero, kUnavailable };

// What NVML does beyond its figures: see nvml/manners.h.
struct NvmlManners {
  NvmlPids pids = NvmlPids::kHost;
  NvmlBytes bytes = NvmlBytes::kExact;
  uint32_t used_has_reserved = 0;            // in the second version of the memory's description
  uint32_t counts_imports = 0;               // for whoever holds them, not for their maker alone
  uint64_t shortest_ns = 0, longest_ns = 0;  // how long a call takes
  uint64_t seed = 0;                         // not 0: it changes its mind
  char unsupported[512] = "";                // functions, with commas between them
};

struct NodeState {
  uint32_t magic;
  uint32_t version;
  uint32_t device_count;
  int32_t kernel_pid;
  std::atomic<uint32_t> slot_high_water;  // no slot at or above this was ever used
  std::atomic<uint32_t> limit_sequence;   // odd while the kernel process writes limits
  // 0 while the node has no file of faults and has lost no device; else another number whenever that file changes.
  std::atomic<uint32_t> faults;
  uint32_t count_calls;  // 1: clients count their calls
  NvmlManners nvml;
  ProcessSlot slots[kMaxProcesses];
  MemoryLimit limits[kMaxMemoryLimits];
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace simgpu
