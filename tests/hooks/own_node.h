// A test with a node of its own, whose description is what the test is about, and a job on it.
#pragma once

#include <algorithm>

#include "support.h"

namespace vgpu::test {

class OwnNodeTest : public testing::Test {
 protected:
  void TearDown() override {
    ranks_.clear();
    node_.reset();
  }

  // One device of 16 GiB, and a job that may have `limit` of it.
  void make(const std::string &lines, std::uint64_t limit, const ContextFigure &context = {}) {
    node_ = std::make_unique<Node>(
        ("memory=16640MiB; reserved=256MiB; idle_ms=300; module=1MiB; context=" + text(kContext) + ";" + lines)
            .c_str());
    std::vector<DeviceSpec> devices = devices_of(*node_, limit);
    devices[0].context = context;
    devices[0].sm_percent = sm_percent_;
    limit_ = devices[0].memory_limit;
    RegionSpec spec = make_spec(devices);
    spec.launch_hooks = sm_percent_ < 100;
    const Error error = Region::create(directory_.path().c_str(), "7", spec);
    ASSERT_FALSE(error) << error.text;
    region_ = directory_.path() + "/7";
  }
  Node &node() { return *node_; }
  const std::string &region() const { return region_; }

  // Lives until the test ends.
  Program &start(const std::vector<std::string> &environment = {}) {
    ranks_.push_back(std::make_unique<Program>(*node_, region_, environment));
    ranks_.back()->must("init");
    return *ranks_.back();
  }

  std::uint64_t held() const { return node_->held(0); }
  // Without blocks that are charged ahead.
  std::uint64_t charged() const {
    const DeviceSnapshot &device = snapshot().device(0);
    return device.memory_used - device.idle;
  }
  std::uint64_t charged(pid_t pid, Kind kind) const {
    const Snapshot &now = snapshot();
    std::uint64_t sum = 0;
    for (unsigned rank = 0; rank < now.ranks(); ++rank) {
      if (now.rank(rank).owner.pid == static_cast<std::uint64_t>(pid)) sum += now.memory(rank, 0, kind);
    }
    return sum;
  }
  // What a rank is charged, of every kind.
  std::uint64_t charged(pid_t pid) const {
    std::uint64_t sum = 0;
    for (const Kind kind : {Kind::context, Kind::module, Kind::data, Kind::other}) sum += charged(pid, kind);
    return sum;
  }

  static constexpr std::uint64_t kContext = 300 * kMiB;
  static constexpr std::uint64_t kGuess = 640 * kMiB;  // for a context, while nobody knows better

  std::uint64_t limit_ = 0;
  std::uint32_t sm_percent_ = 100;  // for make()

 private:
  const Snapshot &snapshot() const {
    snapshot_ = std::make_unique<Snapshot>();
    const Error error = Snapshot::read(region_.c_str(), Trust::root_or_self, Detail::memory, snapshot_.get());
    EXPECT_FALSE(error) << error.text;
    return *snapshot_;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Node> node_;
  std::string region_;
  std::vector<std::unique_ptr<Program>> ranks_;
  mutable std::unique_ptr<Snapshot> snapshot_;
};

}  // namespace vgpu::test
