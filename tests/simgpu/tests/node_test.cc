// Nodes: what their description and the environment make of them, and how they begin and end.
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "support.h"

namespace {

// Sets a variable for the length of a test's scope; whatever starts in it inherits it.
class Setting {
 public:
  Setting(const char *name, const std::string &value) : name_(name) {
    const char *old = getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() {
    if (had_)
      setenv(name_, old_.c_str(), 1);
    else
      unsetenv(name_);
  }
  Setting(const Setting &) = delete;
  Setting &operator=(const Setting &) = delete;

 private:
  const char *name_;
  bool had_;
  std::string old_;
};

std::string directory(const char *name) { return std::string(getenv("SIMGPU_NODE")) + "/" + name; }

size_t host_shared_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  size_t kilobytes = 0;
  while (file >> word)
    if (word == "Shmem:") file >> kilobytes;
  return kilobytes << 10;
}

TEST(Visible, EveryFormOfTheVariable) {
  struct {
    const char *value, *answer;
  } rows[] = {
      {"1", "0 B"},
      {"1,0", "0 B+A"},
      {" 0 , 1 ", "0 A+B"},
      {"GPU-516d6770-7500-4000-8000-000000000002", "0 B"},
      {"GPU-516d6770-7500-4000-8000-000000000002,0", "0 B+A"},
      {"GPU-5", "100"},  // no unique beginning
      {"", "100"},       // none
      {"7", "100"},      // no such device
      {"1,7,0", "0 B"},  // ends at the first that means nothing
      {"0,0", "100"},    // twice the same
      {"-1", "100"},
  };
  Setting node("SIMGPU_NODE", directory("visible"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; device; name=A; device; name=B");
  for (const auto &row : rows) {
    Setting visible("CUDA_VISIBLE_DEVICES", row.value);
    Client client;
    EXPECT_EQ(row.answer, client.ask("devices")) << row.value;
  }
}

TEST(Visible, FasterDevicesComeFirstUnlessToldOtherwise) {
  Setting node("SIMGPU_NODE", directory("order"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; device; name=slow; sms=10; device; name=fast; sms=100");
  Client by_speed;
  EXPECT_EQ("0 fast+slow", by_speed.ask("devices"));
  Setting order("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  Client by_bus;
  EXPECT_EQ("0 slow+fast", by_bus.ask("devices"));
}

TEST(Nodes, SideBySideTheyDoNotMeet) {
  Client here;
  here.must("ctx 0");
  {
    Setting node("SIMGPU_NODE", directory("other"));
    Client there;
    there.must("ctx 0");
    EXPECT_EQ(kContextBytes, held_bytes(0));
    EXPECT_EQ(kContextBytes, held_bytes(0, there.pid()));
  }
  EXPECT_EQ(kContextBytes, held_bytes(0, here.pid()));
}

TEST(Nodes, AnEightyGibibyteDeviceNeedsNoSuchHost) {
  Setting node("SIMGPU_NODE", directory("large"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=80GiB; device");
  Client client;
  client.must("ctx 0");
  size_t before = host_shared_memory();
  std::string p = client.must("alloc " + std::to_string(70ull << 30));
  client.must("fill " + p + " 0 " + std::to_string(70ull << 30));
  client.must("fill " + p + " 1 1000");
  EXPECT_EQ("1", client.must("peek " + p));
  EXPECT_LT(host_shared_memory(), before + (256ull << 20));
}

TEST(Nodes, EndWhenIdleAndBeginAgain) {
  Setting node("SIMGPU_NODE", directory("idle"));
  Setting config("SIMGPU_CONFIG", "idle_ms=50; memory=1GiB; device");
  std::string socket = directory("kernel.sock");
  for (int round = 0; round < 3; round++) {
    Client client;
    client.must("ctx 0");
    EXPECT_EQ(0, access(socket.c_str(), F_OK));
    usleep(150000);
    client.must("alloc 1000");  // not idle while somebody is connected
    client.kill_now();
    EXPECT_TRUE(eventually([&] { return access(socket.c_str(), F_OK) != 0; }, 2000)) << "the node did not end";
  }
}

TEST(Nodes, ManyStartOneTogether) {
  Setting node("SIMGPU_NODE", directory("rush"));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 12; i++) clients.push_back(std::make_unique<Client>());
  for (auto &client : clients) client->tell("ctx 0");
  for (auto &client : clients) EXPECT_EQ("0", client->answer());
  EXPECT_EQ(12 * kContextBytes, held_bytes(0)) << "not all on the same node";
}

TEST(Nodes, AMistakeInTheDescriptionIsToldAndNothingStarts) {
  Setting node("SIMGPU_NODE", directory("mistake"));
  Setting config("SIMGPU_CONFIG", "memory=much");
  Client client;
  EXPECT_EQ("100", client.ask("init"));
}

TEST(Nodes, ExecGivesTheMemoryBack) {
  Client client;
  client.must("ctx 0");
  client.tell("exec");
  EXPECT_TRUE(eventually([&] { return held_bytes(0, client.pid()) == 0; }));
}

}  // namespace
