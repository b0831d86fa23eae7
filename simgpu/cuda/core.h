// The objects of the simulated driver and the rules for reaching them. Everything here is guarded by Driver::mutex unless
// its comment says otherwise; handles given to clients are pointers to these objects.
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "simgpu/cuda/memory/area.h"
#include "simgpu/cuda/memory/blocks.h"
#include "simgpu/node/engine.h"
#include "simgpu/node/link.h"

namespace simgpu {

struct Module;
struct Stream;
struct Event;
struct EventState;
struct Pool;
struct GreenContext;

constexpr unsigned kSizeClasses = 48;
constexpr uint32_t kContextMagic = 0x43545831;

struct Context {
  uint32_t magic = kContextMagic;
  bool alive = true;  // a destroyed context's shell stays, so that its handle can be told from a live one
  bool primary = false;
  int references = 0;
  unsigned flags = 0;
  unsigned api_version = 0;
  uint64_t id = 0;
  Device *device = nullptr;
  BlockList overhead;
  BlockList heap;  // what cuCtxSetLimit asked for beyond the defaults
  BlockList code;  // of functions that were loaded when they were first needed: see launch/prepare.h
  uint64_t code_bytes = 0;
  BlockList local_memory;  // beyond what comes with the context
  Area *areas = nullptr;
  std::vector<Area *> partial_slabs[2][kSizeClasses];  // [1] below 4 GiB, for the 32-bit calls
  std::set<Module *> modules;
  std::set<Stream *> streams;
  std::set<Event *> events;
  Stream *legacy_stream = nullptr;
  std::atomic<int> busy_streams{0};  // streams with work in their own queues
  // The last kernel launched in any stream, and in any that the default stream waits for.
  std::atomic<uint64_t> tail{0};
  std::atomic<uint64_t> blocking_tail{0};
  std::set<Device *> peers;
  size_t limits[CU_LIMIT_MAX] = {};
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  Context *home = nullptr;  // a green context's face: the primary context, in which its calls really are
  GreenContext *green = nullptr;
};

// Memory of graph allocation nodes: what finished graphs gave back stays here for the next launch until it is trimmed.
struct GraphMemory {
  BlockList cached;
  uint64_t used_bytes = 0;
  uint64_t used_high = 0;
  uint64_t reserved_high = 0;
  uint64_t reserved_bytes() const { return used_bytes + cached.size() * kBlockBytes; }
};

// One cuEventRecord.
struct EventRecord {
  uint64_t number = 0;  // among those of its event
  Device *device = nullptr;
  uint64_t after = 0;         // the kernel it is behind
  uint64_t submitted_ns = 0;  // by the device's clock
  bool queued = false;        // it is behind something in its stream's own queue as well
  bool held = false;          // which holds kernels back
};

struct Device {
  int ordinal = 0;  // CUDA's number, after CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER
  DeviceState *state = nullptr;
  DeviceSlot *books = nullptr;
  BlockSource blocks;
  Context *primary = nullptr;
  int primary_references = 0;  // retains not released; a reset leaves them
  unsigned primary_flags = 0;
  Pool *default_pool = nullptr;
  Pool *current_pool = nullptr;
  Pool *managed_pool = nullptr;
  GraphMemory graph_memory;
  Engine engine;
  bool launches_cost = false;  // see launch/prepare.h
  std::mutex launch_mutex;     // guards launching, and `records`
  // Events that happen when a kernel ends, by its number.
  std::multimap<uint64_t, std::pair<std::shared_ptr<EventState>, EventRecord>> records;

  std::atomic<bool> was_lost{false};  // not under the mutex: set by whichever call finds out

  bool broken() const { return state->broken.load(std::memory_order_relaxed) != kDeviceOk; }
  bool lost() const { return state->broken.load(std::memory_order_relaxed) == kDeviceLost; }
  const DeviceFacts &facts() const { return state->facts; }
};

struct HostRange {
  size_t bytes = 0;
  unsigned flags = 0;
  bool registered = false;  // the client's own memory: never unmapped by us
  Context *context = nullptr;
};

class Driver {
 public:
  CUresult start();

  std::mutex mutex;
  NodeLink link;
  std::vector<Device *> devices;  // CUDA order; never changes after start
  AddressSpace addresses;
  std::map<uintptr_t, HostRange> host_ranges;
  std::set<Pool *> pools;
  std::set<Area *> managed;
  std::set<Area *> imports;
  std::set<Context *> contexts;
  std::set<void *>
      arrays;  // arrays and mipmaps; a destroyed context leaves their shells, so that handles stay checkable
  std::vector<Context *> dead_contexts;  // shells, see Context::alive
  std::atomic<bool> pools_dirty{false};  // a pool may hold more than its release threshold
  uint64_t next_id = 1;

  Device *device(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < static_cast<int>(devices.size()) ? devices[static_cast<size_t>(ordinal)] : nullptr;
  }

  // Area objects are recycled: their vectors keep their memory, which is what makes a pair of calls cheap.
  Area *new_area();
  Area *new_slab(unsigned size_class);  // null when there is no spare one
  void delete_area(Area *area);

 private:
  std::vector<Area *> spare_areas_;
  std::vector<Area *> spare_slabs_[kSizeClasses];
};

// Null before a successful cuInit, and in a child forked after it: CUDA does not survive a fork.
extern std::atomic<Driver *> g_driver;

struct ThreadState {
  Context *stack[128];
  int depth;
  CUstreamCaptureMode capture_mode;
};
extern thread_local constinit ThreadState t_thread;

// What a call that needs only cuInit starts with.
#define SIMGPU_DRIVER(driver)                                                    \
  ::simgpu::Driver *driver = ::simgpu::g_driver.load(std::memory_order_acquire); \
  if (__builtin_expect(driver == nullptr, 0)) return CUDA_ERROR_NOT_INITIALIZED

CUresult current_context(Driver *driver, Context **context);
Context *valid_context(CUcontext handle);
inline Context *top_context() { return t_thread.depth > 0 ? t_thread.stack[t_thread.depth - 1] : nullptr; }

// What a call that needs a current context starts with.
#define SIMGPU_CONTEXT(driver, context) \
  SIMGPU_DRIVER(driver);                \
  ::simgpu::Context *context;           \
  if (CUresult entry_result = ::simgpu::current_context(driver, &context)) return entry_result

using DriverLock = std::lock_guard<std::mutex>;

// Takes device memory, letting managed memory of this process make room. All functions below expect the driver's lock.
// The memory of a context, a module or an allocation comes in units of DeviceFacts::block_bytes.
bool take_blocks(Driver *driver, Device *device, uint64_t bytes, BlockUse use, BlockList *out);
inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Linear memory: linear.cc
CUresult allocate_linear(Driver *driver, Context *context, size_t bytes, bool low, CUdeviceptr *address);
CUresult allocate_area(Driver *driver, Context *context, size_t bytes, AreaKind kind, BlockUse use, bool low,
                       Area **area);
CUresult free_address(Driver *driver, CUdeviceptr address);
void free_area(Driver *driver, Area *area);
void link_area(Context *context, Area *area);
void unlink_area(Context *context, Area *area);
void evict_managed(Driver *driver, Device *device);
void make_resident(Driver *driver, Area *area, Device *device);

// Contexts: context.cc
CUresult create_context(Driver *driver, Device *device, unsigned flags, bool primary, Context **context);
void destroy_context(Driver *driver, Context *context);
uint64_t monotonic_ns();

// One line on stderr when SIMGPU_LOG is set: what the simulator does not do must not go unnoticed.
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace simgpu
