#include "graphs.h"

#include "base/flat_map.h"
#include "base/mutex.h"
#include "base/wiped.h"
#include "blocks.h"
#include "devices.h"
#include "driver/table.h"
#include "region/layout.h"

namespace vgpu::runtime {

std::atomic<bool> graphs_allocate{false};

namespace {

constexpr unsigned kMaxDepth = 16;  // of child graphs

struct Launches {
  Mutex mutex;
  FlatMap bytes VGPU_GUARDED_BY(mutex);  // of an executable graph and a device -> what a launch takes
};
constinit WipedOnFork<Launches> launches;

std::uint64_t key_of(CUgraphExec exec, CUdevice ordinal) {
  return reinterpret_cast<std::uint64_t>(exec) | static_cast<std::uint64_t>(ordinal) << 57;
}

class Sum {
 public:
  void add(CUgraph graph, unsigned depth = 0) {
    std::size_t count = 0;
    if (depth == kMaxDepth || REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return;
    const std::size_t size = count * sizeof(CUgraphNode);
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    auto *nodes = static_cast<CUgraphNode *>(memory);
    if (REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS) {
      for (std::size_t i = 0; i < count; ++i) add_node(nodes[i], depth);
    }
    munmap(memory, size);
  }
  const std::uint64_t *bytes() const { return bytes_; }

 private:
  void add_node(CUgraphNode node, unsigned depth) {
    CUgraphNodeType type;
    if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS) add(child, depth + 1);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      CUDA_MEM_ALLOC_NODE_PARAMS params;
      if (REAL(cuGraphMemAllocNodeGetParams)(node, &params) != CUDA_SUCCESS) return;
      const CUmemLocation &where = params.poolProps.location;
      if (where.type != CU_MEM_LOCATION_TYPE_DEVICE || where.id < 0 ||
          where.id >= static_cast<int>(region::kMaxDevices))
        return;
      // On a device that is not the job's, the launch is refused whatever it takes.
      const int dev = region_device(where.id);
      bytes_[where.id] += dev == kNotInJob
                              ? params.bytesize
                              : whole_blocks(params.bytesize, block_bytes(static_cast<unsigned>(dev), where.id));
    }
  }

  std::uint64_t bytes_[region::kMaxDevices] = {};
};

}  // namespace

void note_graph_allocates() {
  if (!graphs_allocate.load(std::memory_order_relaxed)) graphs_allocate.store(true, std::memory_order_relaxed);
}

void graph_instantiated(CUgraphExec exec, CUgraph graph) {
  Launches *all = launches.get();
  if (all == nullptr) return;
  Sum sum;
  sum.add(graph);
  ScopedLock lock(all->mutex);
  for (CUdevice ordinal = 0; ordinal < static_cast<CUdevice>(region::kMaxDevices); ++ordinal) {
    std::uint64_t *known = all->bytes.find(key_of(exec, ordinal));
    const std::uint64_t bytes = sum.bytes()[ordinal];
    if (known == nullptr && bytes != 0) known = all->bytes.insert(key_of(exec, ordinal));
    if (known != nullptr) *known = bytes;
  }
}

void graph_destroyed(CUgraphExec exec) {
  Launches *all = launches.get();
  if (all == nullptr) return;
  ScopedLock lock(all->mutex);
  for (CUdevice ordinal = 0; ordinal < static_cast<CUdevice>(region::kMaxDevices); ++ordinal) {
    if (std::uint64_t *known = all->bytes.find(key_of(exec, ordinal))) all->bytes.erase(known);
  }
}

std::uint64_t launch_bytes(CUgraphExec exec, CUdevice ordinal) {
  Launches *all = launches.get();
  if (all == nullptr) return 0;
  ScopedLock lock(all->mutex);
  const std::uint64_t *known = all->bytes.find(key_of(exec, ordinal));
  return known != nullptr ? *known : 0;
}

}  // namespace vgpu::runtime
