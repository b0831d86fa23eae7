// The node file: what is written is read back, and nothing else is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "node/node.h"
#include "region/support.h"

namespace vgpu::node {

using namespace region;
namespace {

NodeDevice make_device(unsigned number) {
  NodeDevice device;
  device.gres_index = static_cast<int>(number);
  device.minor = static_cast<int>(number + 4);
  device.device_file = "/dev/nvidia" + std::to_string(number + 4);
  device.gpu_uuid = "GPU-516d6770-7500-4000-8000-00000000000" + std::to_string(number);
  assign(device.identity.uuid, device.gpu_uuid);
  assign(device.identity.pci_bus_id, "0000:0" + std::to_string(number + 1) + ":00.0");
  device.identity.memory_bytes = std::uint64_t{16} << 30;
  device.identity.numa_node = static_cast<int>(number);
  assign(device.identity.cpuset, "0-31,64-95");
  return device;
}

Node make_node() {
  Node node;
  node.devices = {make_device(0), make_device(1)};
  NodeDevice mig = make_device(2);
  assign(mig.identity.uuid, "MIG-0ff0f0ff-1111-5222-8333-444444444444");
  mig.gres_index = -1;
  mig.device_file = "";
  mig.identity.numa_node = -1;
  assign(mig.identity.cpuset, "");
  node.devices.push_back(mig);
  node.driver = "580.95.05";
  node.devices[0].context = {457179136, ContextSource::measured};
  node.devices[0].usable_bytes = (std::uint64_t{16} << 30) - (256 << 20);
  node.devices[0].block_bytes = 2 << 20;
  node.devices[1].context = {300 << 20, ContextSource::site};
  node.problems = {"NVML cannot tell about GPU 3: GPU is lost"};
  return node;
}

void expect_same(const Node &left, const Node &right) {
  EXPECT_EQ(left.fail_open, right.fail_open);
  EXPECT_EQ(left.driver, right.driver);
  EXPECT_EQ(left.problems, right.problems);
  ASSERT_EQ(left.devices.size(), right.devices.size());
  for (std::size_t i = 0; i < left.devices.size(); ++i) {
    EXPECT_EQ(left.devices[i].gres_index, right.devices[i].gres_index);
    EXPECT_EQ(left.devices[i].minor, right.devices[i].minor);
    EXPECT_EQ(left.devices[i].device_file, right.devices[i].device_file);
    EXPECT_EQ(left.devices[i].gpu_uuid, right.devices[i].gpu_uuid);
    EXPECT_EQ(std::memcmp(&left.devices[i].identity, &right.devices[i].identity, sizeof(DeviceIdentity)), 0);
    EXPECT_EQ(left.devices[i].context.bytes, right.devices[i].context.bytes);
    EXPECT_EQ(left.devices[i].context.source, right.devices[i].context.source);
    EXPECT_EQ(left.devices[i].usable_bytes, right.devices[i].usable_bytes);
    EXPECT_EQ(left.devices[i].block_bytes, right.devices[i].block_bytes);
  }
}

class NodeFile : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/node"; }
  void put(const std::string &text) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << text;
    chmod(path().c_str(), 0644);
  }
  Error read(Node *node) const { return read_node(path(), Trust::root_or_self, node); }
  Fault fault_of(const std::string &text) const {
    put(text);
    Node node;
    const Error error = read(&node);
    if (error) {
      EXPECT_EQ(std::string(error.text).rfind(path(), 0), 0u) << error.text;
      EXPECT_TRUE(node.devices.empty());
    }
    return error.fault;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(NodeFile, IsReadBackAsItWasWritten) {
  for (const bool fail_open : {false, true}) {
    Node written = make_node(), node;
    written.fail_open = fail_open;
    ASSERT_FALSE(write_node(path(), written));
    const Error error = read(&node);
    ASSERT_FALSE(error) << error.text;
    expect_same(written, node);
    EXPECT_FALSE(node.devices[0].is_mig());
    EXPECT_TRUE(node.devices[2].is_mig());
  }
}

TEST_F(NodeFile, MayHaveNoDevices) {
  Node node = make_node();
  ASSERT_FALSE(write_node(path(), Node()));
  ASSERT_FALSE(read(&node));
  EXPECT_TRUE(node.devices.empty());
}

TEST_F(NodeFile, SaysInItsFirstTwoLinesWhatOldReadersNeed) {
  Node node = make_node();
  node.fail_open = true;
  EXPECT_EQ(format_node(node).rfind("vgpu-node 2\non-error open\n", 0), 0u);
}

// What the first release wrote, and what a node looks like on which nothing more is known.
TEST_F(NodeFile, OfTheFirstVersionIsStillReadAndWritten) {
  const std::string text =
      "vgpu-node 1\n"
      "on-error closed\n"
      "device gres=0 minor=4 file=/dev/nvidia4 gpu=GPU-516d6770-7500-4000-8000-000000000000 "
      "uuid=GPU-516d6770-7500-4000-8000-000000000000 pci=0000:01:00.0 memory=17179869184 numa=0 cpus=0-31,64-95\n"
      "problem NVML cannot tell about GPU 3: GPU is lost\n"
      "end 1\n";
  put(text);
  Node node;
  const Error error = read(&node);
  ASSERT_FALSE(error) << error.text;
  ASSERT_EQ(node.devices.size(), 1u);
  EXPECT_EQ(node.driver, "");
  EXPECT_EQ(node.devices[0].context.source, ContextSource::unknown);
  EXPECT_EQ(node.devices[0].usable_bytes, 0u);
  EXPECT_EQ(format_node(node), text);
  std::string mixed = text;
  mixed.insert(mixed.find("\nproblem"), " context=- context-from=- usable=- block=-");
  EXPECT_EQ(fault_of(mixed), Fault::corrupt) << "fields of another version";
  mixed.replace(mixed.find("vgpu-node 1"), 11, "vgpu-node 2");
  EXPECT_EQ(fault_of(mixed), Fault::none);
}

TEST_F(NodeFile, IsReplacedInOneStepAndLeavesNothingElse) {
  ASSERT_FALSE(write_node(path(), Node()));
  const int old = open(path().c_str(), O_RDONLY | O_CLOEXEC);
  const mode_t mask = umask(0777);
  const Error error = write_node(path(), make_node());
  umask(mask);
  ASSERT_FALSE(error) << error.text;
  struct stat before, after;
  fstat(old, &before);
  close(old);
  stat(path().c_str(), &after);
  EXPECT_NE(before.st_ino, after.st_ino);
  EXPECT_EQ(after.st_mode & 07777u, 0644u) << "whatever the umask";
  const std::filesystem::directory_iterator entries(directory_.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST_F(NodeFile, ThatCannotBeWrittenLeavesNothing) {
  mkdir(path().c_str(), 0755);
  std::ofstream(path() + "/occupied") << "x";
  EXPECT_EQ(write_node(path(), make_node()).fault, Fault::system);
  const std::filesystem::directory_iterator entries(directory_.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
  EXPECT_EQ(write_node(directory_.path() + "/missing/node", make_node()).fault, Fault::system);
}

TEST_F(NodeFile, IsNotWrittenWhenNobodyCouldReadIt) {
  const struct {
    const char *what;
    void (*spoil)(Node *);
  } rows[] = {
      {"blanks", [](Node *node) { node->devices[0].device_file = "/dev/my gpu"; }},
      {"lines", [](Node *node) { node->problems[0] = "two\nlines"; }},
      {"no UUID", [](Node *node) { node->devices[0].identity.uuid[0] = '\0'; }},
      {"twice", [](Node *node) { node->devices[1] = node->devices[0]; }},
      {"no memory", [](Node *node) { node->devices[0].identity.memory_bytes = 0; }},
      {"PCI", [](Node *node) { assign(node->devices[0].identity.pci_bus_id, "00000000:0B:00.0"); }},
  };
  for (const auto &row : rows) {
    Node node = make_node();
    row.spoil(&node);
    EXPECT_TRUE(write_node(path(), node)) << row.what;
    EXPECT_FALSE(std::filesystem::exists(path())) << row.what;
  }
}

TEST_F(NodeFile, CutOffAnywhereIsNoticed) {
  const std::string text = format_node(make_node());
  for (std::size_t length = 0; length < text.size(); ++length) {
    const Fault expected = length < std::strlen("vgpu-node 1\n") ? Fault::foreign : Fault::truncated;
    EXPECT_EQ(fault_of(text.substr(0, length)), expected) << "cut off after " << length << " bytes";
  }
}

TEST_F(NodeFile, OfSomebodyElseIsNotBelieved) {
  EXPECT_EQ(fault_of(""), Fault::foreign);
  EXPECT_EQ(fault_of("root:x:0:0:root:/root:/bin/bash\n"), Fault::foreign);
  EXPECT_EQ(fault_of(std::string(2'000'000, 'x')), Fault::foreign);
  EXPECT_EQ(fault_of(std::string(100, '\0')), Fault::foreign);
}

TEST_F(NodeFile, OfANewerVersionSaysSo) {
  std::string text = format_node(make_node());
  text.replace(0, 11, "vgpu-node 3");
  EXPECT_EQ(fault_of(text), Fault::newer);
  text.replace(0, 11, "vgpu-node 0");
  EXPECT_EQ(fault_of(text), Fault::corrupt);
  text.replace(0, 11, "vgpu-node x");
  EXPECT_EQ(fault_of(text), Fault::corrupt);
}

// One change of one field each: `from` is in the file, `to` is not acceptable in its place.
TEST_F(NodeFile, IsCheckedFieldByField) {
  const std::string text = format_node(make_node());
  const struct {
    const char *from, *to;
  } rows[] = {
      {"on-error closed", "on-error perhaps"},
      {"on-error closed\n", ""},
      {"gres=0", "gres=-1"},
      {"gres=0", "gres=x"},
      {"gres=0", "gres="},
      {"gres=0", "gres=99999999999"},
      {"gres=0", "gres=1"},  // the second device's
      {"gres=0 ", ""},
      {"gres=0", "index=0"},
      {"minor=4", "minor=4x"},
      {"file=/dev/nvidia4", "file=nvidia4"},
      {"file=/dev/nvidia4", "file=/dev/nvidia\x01"},
      {"gpu=GPU-", "gpu=TPU-"},
      {"uuid=GPU-516d6770", "uuid=GPU-616d6770"},  // neither the GPU's nor a MIG instance's
      {"uuid=MIG-", "uuid=MOG-"},
      {"pci=0000:01:00.0", "pci=0000:01:00.8"},
      {"pci=0000:01:00.0", "pci=0000:01:00"},
      {"pci=0000:01:00.0", "pci=-"},
      {"memory=17179869184", "memory=0"},
      {"memory=17179869184", "memory=511"},
      {"memory=17179869184", "memory=99999999999999"},
      {"memory=17179869184", "memory=99999999999999999999"},
      {"memory=17179869184", "memory=16G"},
      {"numa=0", "numa=-1"},
      {"cpus=0-31,64-95", "cpus=all"},
      {"cpus=0-31,64-95", "cpus=0-31,64-95 more=1"},
      {"context=457179136", "context=436M"},
      {"context=457179136", "context=0"},
      {"context=457179136", "context=-"},  // measured, but what?
      {"context-from=measured", "context-from=guessed"},
      {"context-from=measured", "context-from=-"},
      {"usable=16911433728", "usable=17179869185"},  // more than there is
      {"usable=16911433728", "usable=-1"},
      {"block=2097152", "block=2M"},
      {"block=2097152", "block=2097152 more=1"},
      {" block=2097152", ""},
      {"driver 580.95.05", "driver "},
      {"driver 580.95.05", "driver 580 95"},
      {"driver 580.95.05", "driver 580\ndriver 580"},
      {"problem NVML", "trouble NVML"},
      {"end 3", "end 2"},
      {"end 3", "end three"},
      {"end 3\n", "end 3\nend 3\n"},
      {"end 3\n", "end 3\n\n"},
  };
  for (const auto &row : rows) {
    std::string changed = text;
    const std::size_t place = changed.find(row.from);
    ASSERT_NE(place, std::string::npos) << row.from;
    changed.replace(place, std::strlen(row.from), row.to);
    EXPECT_EQ(fault_of(changed), Fault::corrupt) << row.from << " -> " << row.to;
  }
  std::string long_list = text;
  long_list.replace(long_list.find("0-31,64-95"), 10, std::string(800, '1'));
  EXPECT_EQ(fault_of(long_list), Fault::corrupt);
}

TEST_F(NodeFile, WithMoreDevicesThanARegionCanHaveIsRefused) {
  Node node;
  for (unsigned i = 0; i < 64; ++i) {
    NodeDevice device = make_device(0);
    device.gres_index = static_cast<int>(i);
    device.gpu_uuid = "GPU-" + std::to_string(i);
    assign(device.identity.uuid, device.gpu_uuid);
    node.devices.push_back(device);
  }
  EXPECT_FALSE(write_node(path(), node));
  node.devices.push_back(make_device(0));
  node.devices.back().gres_index = -1;
  EXPECT_EQ(write_node(path(), node).fault, Fault::corrupt);
}

TEST_F(NodeFile, MissingLinkedOrWritableIsRefused) {
  Node node;
  EXPECT_EQ(read(&node).fault, Fault::not_found);

  ASSERT_FALSE(write_node(path() + "-real", make_node()));
  ASSERT_EQ(symlink((path() + "-real").c_str(), path().c_str()), 0);
  EXPECT_EQ(read(&node).fault, Fault::symlink);
  unlink(path().c_str());

  ASSERT_EQ(mkfifo(path().c_str(), 0644), 0);
  EXPECT_EQ(read(&node).fault, Fault::foreign);
  unlink(path().c_str());

  ASSERT_FALSE(write_node(path(), make_node()));
  chmod(path().c_str(), 0664);
  EXPECT_EQ(read(&node).fault, Fault::writable);
}

TEST_F(NodeFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_FALSE(write_node(path(), make_node()));
  ASSERT_EQ(chown(path().c_str(), 65534, 65534), 0);
  Node node;
  EXPECT_EQ(read_node(path(), Trust::root, &node).fault, Fault::wrong_owner);
  EXPECT_EQ(read_node(path(), Trust::root_or_self, &node).fault, Fault::wrong_owner);
}

}  // namespace
}  // namespace vgpu::node
