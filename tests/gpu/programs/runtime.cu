// A small program as users write them, for whichever runtime it is linked with. Prints what it saw, and ends with an error if a
// call failed or a result is wrong. With the argument `fill` it takes memory until there is no more.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const cudaError_t error_ = (call);                                                  \
    if (error_ != cudaSuccess) {                                                        \
      std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error_));      \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

constexpr int kCount = 1 << 20;

__global__ void add(int *data, int count, int more) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += more;
}

// A simulated device computes nothing, and leaves the data as they were.
static const char *computed(const std::vector<int> &data, int more) {
  int right = 0, unchanged = 0;
  for (int i = 0; i < kCount; ++i) {
    right += data[i] == i + more;
    unchanged += data[i] == i;
  }
  return right == kCount ? "right" : unchanged == kCount ? "unchanged" : "WRONG";
}

int main(int argc, char **argv) {
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  std::printf("total %zu MiB\n", total >> 20);

  std::vector<int> host(kCount);
  for (int i = 0; i < kCount; ++i) host[i] = i;
  int *data = nullptr, *other = nullptr;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaMalloc(&data, kCount * sizeof(int)));
  CHECK(cudaMallocAsync(&other, 1 << 20, stream));
  CHECK(cudaMemcpyAsync(data, host.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
  CHECK(cudaEventRecord(begin, stream));
  add<<<(kCount + 255) / 256, 256, 0, stream>>>(data, kCount, 3);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaMemcpyAsync(host.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(other, stream));
  CHECK(cudaStreamSynchronize(stream));
  const char *result = computed(host, 3);
  std::printf("computed %s\n", result);

  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<(kCount + 255) / 256, 256, 0, stream>>>(data, kCount, 1);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf("graph ok\n");

  if (argc > 1 && std::strcmp(argv[1], "fill") == 0) {
    constexpr size_t kPiece = 32 << 20;
    size_t filled = 0;
    cudaError_t error = cudaSuccess;
    for (void *piece = nullptr; (error = cudaMalloc(&piece, kPiece)) == cudaSuccess;) filled += kPiece;
    std::printf("filled %zu MiB\nthen %s\n", filled >> 20, cudaGetErrorName(error));
    if (error != cudaErrorMemoryAllocation || filled >= total) return 1;
  }
  return std::strcmp(result, "WRONG") == 0;
}
