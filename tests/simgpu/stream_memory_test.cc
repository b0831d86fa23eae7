// Words that streams write and wait for, attributes of streams, and clusters of blocks.
#include "support.h"

namespace {

const char kPtx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";

class StreamWords : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    void *host = nullptr;
    OK(cuMemAllocHost_v2(&host, 4096));
    words_ = static_cast<uint64_t *>(host);
    words_[0] = 0;
    words_[1] = 0;
    address_ = reinterpret_cast<CUdeviceptr>(words_);
  }
  void TearDown() override {
    OK(cuStreamDestroy_v2(stream_));
    OK(cuMemFreeHost(const_cast<uint64_t *>(words_)));
    ContextTest::TearDown();
  }
  CUstream stream_ = nullptr;
  volatile uint64_t *words_ = nullptr;
  CUdeviceptr address_ = 0;
};

TEST_F(StreamWords, AreWrittenInTheirTurn) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, 8));
  OK(cuStreamWaitValue32_v2(stream_, address_, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuStreamWriteValue64_v2(stream_, p, 0x1122334455667788, 0));
  OK(cuStreamWriteValue32(stream_, address_ + 8, 5, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
  FAILS(NOT_READY, cuStreamQuery(stream_));
  EXPECT_EQ(0u, words_[1]) << "written before what it comes behind";
  words_[0] = 1;
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(5u, words_[1]);
  uint64_t value = 0;
  OK(cuMemcpyDtoH_v2(&value, p, sizeof value));
  EXPECT_EQ(0x1122334455667788u, value);
  OK(cuMemFree_v2(p));
}

TEST_F(StreamWords, AreWaitedForByFourConditions) {
  words_[0] = 3;
  OK(cuStreamWaitValue32(stream_, address_, 2, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWaitValue64(stream_, address_, 3, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuStreamWaitValue64_v2(stream_, address_, 2, CU_STREAM_WAIT_VALUE_AND));
  OK(cuStreamWaitValue32_v2(stream_, address_, 4, CU_STREAM_WAIT_VALUE_NOR));
  OK(cuStreamSynchronize(stream_));
  // By distance, so that counters may overflow.
  OK(cuStreamWaitValue32(stream_, address_, 0xfffffff0, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamSynchronize(stream_));
  OK(cuStreamWaitValue32(stream_, address_, 0xfffffffc, CU_STREAM_WAIT_VALUE_NOR));
  OK(cuStreamWriteValue32(stream_, address_ + 8, 1, 0));
  FAILS(NOT_READY, cuStreamQuery(stream_)) << "all bits are set in one of the two";
  words_[0] = 2;
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(1u, words_[1]);
}

TEST_F(StreamWords, MustBeThere) {
  FAILS(INVALID_VALUE, cuStreamWriteValue32(stream_, 0, 1, 0));
  FAILS(INVALID_VALUE, cuStreamWriteValue32(stream_, address_ + 2, 1, 0)) << "not aligned";
  FAILS(INVALID_VALUE, cuStreamWriteValue64(stream_, address_ + 4, 1, 0)) << "not aligned";
  FAILS(INVALID_VALUE, cuStreamWriteValue32(stream_, address_, 1, 2));
  FAILS(INVALID_VALUE, cuStreamWaitValue32(stream_, address_, 1, 4));
  FAILS(NOT_SUPPORTED, cuStreamWaitValue32(stream_, address_, 1, CU_STREAM_WAIT_VALUE_FLUSH));
  int can = 0;
  OK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
  EXPECT_EQ(1, can);
}

TEST_F(StreamWords, AttributesAreKept) {
  CUstreamAttrValue value{};
  OK(cuStreamGetAttribute(stream_, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_EQ(CU_SYNC_POLICY_AUTO, value.syncPolicy);
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  OK(cuStreamSetAttribute(stream_, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  CUstream other;
  OK(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, -3));
  OK(cuStreamGetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  EXPECT_EQ(-3, value.priority);
  OK(cuStreamCopyAttributes(other, stream_));
  OK(cuStreamGetAttribute(other, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_EQ(CU_SYNC_POLICY_YIELD, value.syncPolicy);
  value.priority = -1;
  OK(cuStreamSetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  int priority = 0;
  OK(cuStreamGetPriority(other, &priority));
  EXPECT_EQ(-1, priority);
  FAILS(INVALID_VALUE, cuStreamGetAttribute(stream_, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value)) << "not of streams";
  FAILS(INVALID_VALUE, cuStreamGetAttribute(stream_, CU_LAUNCH_ATTRIBUTE_PRIORITY, nullptr));
  OK(cuStreamDestroy_v2(other));
}

TEST_F(StreamWords, ClustersAreForNewerDevices) {
  CUmodule module;
  CUfunction function;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "nothing"));
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {1, 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 1024;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  OK(cuOccupancyMaxActiveClusters(&clusters, function, &config));
  EXPECT_EQ(160, clusters) << "two blocks of 1024 threads on each of 80 SMs";
  attribute.value.clusterDim = {2, 1, 1};
  FAILS(INVALID_CLUSTER_SIZE, cuOccupancyMaxActiveClusters(&clusters, function, &config)) << "of 8.0";
  attribute.value.clusterDim = {0, 1, 1};
  FAILS(INVALID_VALUE, cuOccupancyMaxActiveClusters(&clusters, function, &config));
  FAILS(INVALID_VALUE, cuOccupancyMaxActiveClusters(&clusters, function, nullptr));
  OK(cuOccupancyMaxPotentialClusterSize(&clusters, function, &config));
  EXPECT_EQ(1, clusters);
}

}  // namespace
