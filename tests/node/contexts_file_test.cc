// The file of measured contexts: what is written is read back, nothing else is, and nobody's but root's.
#include "node/contexts_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/temporary_directory.h"

namespace vgpu::node {

using namespace region;
namespace {

std::vector<KnownContext> two() {
  return {{"GPU-516d6770-7500-4000-8000-000000000000", "580.95.05", 457179136, 84557168640, 2097152, 1794960000},
          {"MIG-0ff0f0ff-1111-5222-8333-444444444444", "535.288.01", 110100480, 0, 0, 1794960001}};
}

class ContextsFile : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/state/contexts"; }
  Fault fault_of(const std::string &text) const {
    std::filesystem::create_directories(directory_.path() + "/state");
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << text;
    chmod(path().c_str(), 0644);
    std::vector<KnownContext> all;
    const Error error = read_contexts(path(), Trust::root_or_self, &all);
    if (error) {
      EXPECT_EQ(std::string(error.text).rfind(path(), 0), 0u) << error.text;
      EXPECT_TRUE(all.empty());
    }
    return error.fault;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(ContextsFile, IsReadBackAsItWasWrittenAndItsDirectoryIsMade) {
  const mode_t mask = umask(0777);
  const Error error = write_contexts(path(), two());
  umask(mask);
  ASSERT_FALSE(error) << error.text;
  struct stat status;
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777u, 0644u);
  ASSERT_EQ(stat((directory_.path() + "/state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777u, 0755u);
  std::vector<KnownContext> all;
  ASSERT_FALSE(read_contexts(path(), Trust::root_or_self, &all));
  EXPECT_EQ(all, two());
}

TEST_F(ContextsFile, IsNotThereBeforeAnythingWasMeasured) {
  std::vector<KnownContext> all;
  EXPECT_EQ(read_contexts(path(), Trust::root_or_self, &all).fault, Fault::not_found);
}

TEST_F(ContextsFile, CutOffAnywhereIsNoticed) {
  const std::string text = format_contexts(two());
  for (std::size_t length = 0; length < text.size(); ++length) {
    const Fault expected = length < std::strlen("vgpu-contexts 1\n") ? Fault::foreign : Fault::truncated;
    EXPECT_EQ(fault_of(text.substr(0, length)), expected) << "cut off after " << length << " bytes";
  }
}

TEST_F(ContextsFile, IsCheckedFieldByField) {
  const std::string text = format_contexts(two());
  const struct {
    const char *from, *to;
    Fault fault = Fault::corrupt;
  } rows[] = {
      {"vgpu-contexts 1", "vgpu-contexts 2", Fault::newer},
      {"vgpu-contexts 1", "vgpu-contexts x", Fault::foreign},
      {"vgpu-contexts 1", "vgpu-node 1", Fault::foreign},
      {"uuid=GPU-", "uuid=TPU-"},
      {"uuid=MIG-0ff0f0ff-1111-5222-8333-444444444444", "uuid=GPU-516d6770-7500-4000-8000-000000000000"},
      {"uuid=GPU-", "gpu=GPU-"},
      {"driver=580.95.05", "driver="},
      {"driver=580.95.05", "driver=580\x01"},
      {"bytes=457179136", "bytes=0"},
      {"bytes=457179136", "bytes=-"},
      {"bytes=457179136", "bytes=436M"},
      {"bytes=457179136", "bytes=99999999999999999999"},
      {"usable=84557168640", "usable=0"},
      {"usable=84557168640", "usable=all"},
      {"block=2097152", "block=-1"},
      {"measured=1794960000", "measured=-1"},
      {"measured=1794960000", "measured=1794960000 more=1"},
      {" measured=1794960000", ""},
      {"end 2", "end 1"},
      {"end 2", "end two"},
      {"end 2\n", "end 2\nend 2\n"},
      {"context uuid=MIG", "contexts uuid=MIG"},
  };
  for (const auto &row : rows) {
    std::string changed = text;
    const std::size_t place = changed.find(row.from);
    ASSERT_NE(place, std::string::npos) << row.from;
    changed.replace(place, std::strlen(row.from), row.to);
    EXPECT_EQ(fault_of(changed), row.fault) << row.from << " -> " << row.to;
  }
}

TEST_F(ContextsFile, IsNotWrittenWhenNobodyCouldReadIt) {
  std::vector<KnownContext> all = two();
  all[0].driver = "two words";
  EXPECT_TRUE(write_contexts(path(), all));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(ContextsFile, LinkedOrWritableByOthersIsRefused) {
  ASSERT_FALSE(write_contexts(path(), two()));
  std::vector<KnownContext> all;
  chmod(path().c_str(), 0666);
  EXPECT_EQ(read_contexts(path(), Trust::root_or_self, &all).fault, Fault::writable);
  chmod(path().c_str(), 0644);
  std::filesystem::rename(path(), path() + "-real");
  ASSERT_EQ(symlink((path() + "-real").c_str(), path().c_str()), 0);
  EXPECT_EQ(read_contexts(path(), Trust::root_or_self, &all).fault, Fault::symlink);
  EXPECT_TRUE(all.empty());
}

TEST_F(ContextsFile, OfAnotherUserIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_FALSE(write_contexts(path(), two()));
  ASSERT_EQ(chown(path().c_str(), 65534, 65534), 0);
  std::vector<KnownContext> all;
  EXPECT_EQ(read_contexts(path(), Trust::root, &all).fault, Fault::wrong_owner);
}

TEST(KnownContexts, HoldForOneGpuAndOneDriver) {
  const std::vector<KnownContext> all = two();
  EXPECT_EQ(find_context(all, all[0].uuid, "580.95.05"), &all[0]);
  EXPECT_EQ(find_context(all, all[0].uuid, "581.00"), nullptr);
  EXPECT_EQ(find_context(all, "GPU-other", "580.95.05"), nullptr);

  Node node;
  node.driver = "580.95.05";
  node.devices.resize(2);
  assign(node.devices[0].identity.uuid, all[0].uuid);
  assign(node.devices[1].identity.uuid, all[1].uuid);
  node.devices[0].identity.memory_bytes = 85520809984;
  node.devices[1].usable_bytes = 1000;
  add_known_contexts(all, &node);
  EXPECT_EQ(node.devices[0].context.bytes, all[0].bytes);
  EXPECT_EQ(node.devices[0].context.source, ContextSource::measured);
  EXPECT_EQ(node.devices[0].usable_bytes, all[0].usable_bytes);
  EXPECT_EQ(node.devices[0].block_bytes, 2097152u);
  EXPECT_EQ(node.devices[1].context.source, ContextSource::unknown) << "measured under another driver";
  EXPECT_EQ(node.devices[1].usable_bytes, 1000u) << "what NVML said stays";
}

TEST(KnownContexts, ANewFigureTakesThePlaceOfTheOld) {
  std::vector<KnownContext> all = two();
  KnownContext newer = all[0];
  newer.driver = "590.1";
  newer.bytes = 1 << 20;
  replace_context(newer, &all);
  EXPECT_EQ(all.size(), 2u);
  EXPECT_EQ(find_context(all, newer.uuid, "580.95.05"), nullptr);
  ASSERT_NE(find_context(all, newer.uuid, "590.1"), nullptr);
  EXPECT_EQ(find_context(all, newer.uuid, "590.1")->bytes, 1u << 20);
}

}  // namespace
}  // namespace vgpu::node
