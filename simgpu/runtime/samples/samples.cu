// Small programs as users write them, compiled by nvcc: each argument names one. They print what they saw and fail loudly.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    cudaError_t error_ = (call);                                                                      \
    if (error_ != cudaSuccess) {                                                                      \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(error_));        \
      exit(1);                                                                                        \
    }                                                                                                 \
  } while (0)
#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);         \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

__device__ int table[16];
__constant__ float factors[4];
__managed__ int counter = 3;

__global__ void scale(float *data, int n, float factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= factor * factors[i % 4] + table[i % 16];
}

static size_t free_bytes() {
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

static void sample_malloc() {
  int count = 0;
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceCount(&count));
  EXPECT(count >= 1);
  CHECK(cudaGetDeviceProperties(&properties, 0));
  printf("%d devices, the first is %s with %d SMs\n", count, properties.name, properties.multiProcessorCount);
  size_t before = free_bytes();
  float *data = nullptr;
  float host[256], back[256];
  for (int i = 0; i < 256; i++) host[i] = static_cast<float>(i);
  CHECK(cudaMalloc(&data, 8 << 20));
  EXPECT(free_bytes() == before - (8 << 20));
  CHECK(cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice));
  scale<<<2, 128>>>(data, 256, 2.0f);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(back, data, sizeof back, cudaMemcpyDeviceToHost));
  EXPECT(back[7] == 7.0f);  // simulated kernels change nothing
  scale<<<1, 4096>>>(data, 256, 2.0f);
  EXPECT(cudaGetLastError() != cudaSuccess);
  EXPECT(cudaGetLastError() == cudaSuccess);
  void *huge = data;
  EXPECT(cudaMalloc(&huge, size_t{1} << 50) == cudaErrorMemoryAllocation);
  EXPECT(huge == data);
  cudaGetLastError();
  int numbers[16] = {1, 2, 3};
  CHECK(cudaMemcpyToSymbol(table, numbers, sizeof numbers));
  memset(numbers, 0, sizeof numbers);
  CHECK(cudaMemcpyFromSymbol(numbers, table, sizeof numbers));
  EXPECT(numbers[2] == 3);
  CHECK(cudaFree(data));
}

static void sample_async() {
  cudaStream_t stream;
  cudaMemPool_t pool;
  size_t used = 1;
  void *data;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cudaMallocAsync(&data, 1 << 20, stream));
  CHECK(cudaMemsetAsync(data, 7, 1 << 20, stream));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  EXPECT(used == 1 << 20);
  unsigned char byte = 0;
  CHECK(cudaMemcpyAsync(&byte, static_cast<char *>(data) + 1000, 1, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(data, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(byte == 7);
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &used));
  EXPECT(used == 0);
  CHECK(cudaStreamDestroy(stream));
}

static void sample_managed() {
  EXPECT(counter == 3);
  counter = 4;
  EXPECT(counter == 4);
  int *data;
  CHECK(cudaMallocManaged(&data, 4 << 20));
  data[1000] = 5;
  size_t before = free_bytes();
  cudaMemLocation location{cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemPrefetchAsync(data, 4 << 20, location, 0, nullptr));
  CHECK(cudaDeviceSynchronize());
  EXPECT(free_bytes() == before - (4 << 20));
  EXPECT(data[1000] == 5);
  CHECK(cudaFree(data));
}

static void sample_graphs() {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  float *data, *inner;
  size_t nodes = 0;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMalloc(&data, 4096));
  scale<<<1, 32, 0, stream>>>(data, 32, 1.0f);  // loads the module, which takes memory of its own
  size_t before = free_bytes();
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(&inner, 2 << 20, stream));
  CHECK(cudaMemsetAsync(data, 0, 4096, stream));
  scale<<<1, 32, 0, stream>>>(inner, 32, 1.0f);
  CHECK(cudaFreeAsync(inner, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 4);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT(free_bytes() == before);
  for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(free_bytes() == before - (2 << 20));
  CHECK(cudaDeviceGraphMemTrim(0));
  EXPECT(free_bytes() == before);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(data));
}

static void sample_events() {
  cudaEvent_t start, end;
  cudaStream_t stream;
  float ms = -1;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(start, stream));
  CHECK(cudaLaunchHostFunc(
      stream, [](void *) { usleep(10000); }, nullptr));
  CHECK(cudaEventRecord(end, stream));
  EXPECT(cudaEventQuery(end) == cudaErrorNotReady);
  CHECK(cudaEventSynchronize(end));
  CHECK(cudaEventElapsedTime(&ms, start, end));
  EXPECT(ms >= 10.0f);
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(end));
}

// The child starts before either of them touches CUDA.
static void sample_ipc() {
  int down[2], up[2];
  EXPECT(pipe(down) == 0 && pipe(up) == 0);
  pid_t child = fork();
  cudaIpcMemHandle_t handle;
  char byte = 0;
  if (child == 0) {
    void *data;
    EXPECT(read(down[0], &handle, sizeof handle) == sizeof handle);
    CHECK(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaMemcpy(&byte, data, 1, cudaMemcpyDeviceToHost));
    EXPECT(byte == 42);
    CHECK(cudaMemset(data, 43, 1));
    CHECK(cudaIpcCloseMemHandle(data));
    EXPECT(write(up[1], "k", 1) == 1);
    _exit(0);
  }
  void *data;
  CHECK(cudaMalloc(&data, 1 << 20));
  CHECK(cudaMemset(data, 42, 1 << 20));
  CHECK(cudaIpcGetMemHandle(&handle, data));
  EXPECT(write(down[1], &handle, sizeof handle) == sizeof handle);
  EXPECT(read(up[0], &byte, 1) == 1);
  int status = 1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  CHECK(cudaMemcpy(&byte, data, 1, cudaMemcpyDeviceToHost));
  EXPECT(byte == 43);
  CHECK(cudaFree(data));
}

// Takes all there is, in pieces, twice.
static void sample_fill() {
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  printf("total %zu MiB\n", total >> 20);
  const size_t piece = 64 << 20;
  size_t filled[2];
  for (size_t &bytes : filled) {
    std::vector<void *> pieces;
    void *data = nullptr;
    while (cudaMalloc(&data, piece) == cudaSuccess) pieces.push_back(data);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    EXPECT(free_bytes() < piece);
    bytes = pieces.size() * piece;
    for (void *each : pieces) CHECK(cudaFree(each));
  }
  EXPECT(filled[0] == filled[1]);
  printf("filled %zu MiB\n", filled[0] >> 20);
}

int main(int argc, char **argv) {
  struct {
    const char *name;
    void (*run)();
  } samples[] = {{"malloc", sample_malloc}, {"async", sample_async},   {"managed", sample_managed},
                 {"graphs", sample_graphs}, {"events", sample_events}, {"ipc", sample_ipc},
                 {"fill", sample_fill}};
  for (int i = 1; i < argc; i++) {
    bool known = false;
    for (auto &sample : samples) {
      if (strcmp(argv[i], sample.name) != 0) continue;
      known = true;
      sample.run();
      printf("%s: ok\n", sample.name);
      fflush(stdout);
    }
    EXPECT(known);
  }
  return 0;
}
