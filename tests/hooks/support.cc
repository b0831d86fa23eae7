#include "support.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include "simgpu/node/config.h"
#include "simgpu/node/engine.h"

namespace vgpu::test {

using namespace region;

namespace {

constexpr const char *kOurs[] = {"LD_", "VGPU_REGION=", "VGPU_LOG=", "CUDA_", "SIMGPU_", "SLURM_"};

// Of the test's own environment a program gets all but what these tests are about. Later variables win.
std::vector<std::string> complete_environment(const std::vector<std::string> &given) {
  std::map<std::string, std::string> variables;
  const auto set = [&](const std::string &variable) {
    const std::size_t sign = variable.find('=');
    variables[variable.substr(0, sign)] = variable.substr(sign);
  };
  for (char **variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (std::none_of(std::begin(kOurs), std::end(kOurs), [&](auto prefix) { return text.starts_with(prefix); })) {
      set(*variable);
    }
  }
  for (const std::string &variable : given) set(variable);
  std::vector<std::string> all;
  for (const auto &[name, value] : variables) all.push_back(name + value);
  return all;
}

// For exec.
std::vector<char *> pointers_to(std::vector<std::string> &texts) {
  std::vector<char *> pointers;
  for (std::string &text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The simulated driver as it was built here, or elsewhere: a build for a sanitizer can do with one that has none.
std::string simgpu_directory() {
  const char *given = std::getenv("SIMGPU_BUILD");
  return given != nullptr ? given : built("simgpu");
}

std::vector<std::string> words(const std::string &line) {
  std::istringstream stream(line);
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

}  // namespace

// ---- Node -----------------------------------------------------------------------------------------------------------

Node::Node(const char *description) : description_(description), link_(std::make_unique<simgpu::NodeLink>()) {
  setenv("SIMGPU_NODE", directory_.path().c_str(), 1);
  setenv("SIMGPU_CONFIG", description, 1);
  setenv("SIMGPU_KERNEL", (simgpu_directory() + "/simgpu-kernel").c_str(), 1);
  std::string error;
  if (link_->connect(false, &error) != 0) {
    std::fprintf(stderr, "no simulated node: %s\n", error.c_str());
    std::abort();
  }
}

Node::~Node() {
  simgpu::Message message{};
  message.op = simgpu::Op::kStop;
  link_->call(&message);
}

std::uint64_t Node::held(unsigned device, pid_t pid) const {
  std::uint64_t blocks = 0;
  for (unsigned slot = 0; slot < simgpu::kMaxProcesses; ++slot) {
    if (pid == 0 || processes().slots[slot].host_pid == pid) blocks += state(device).slots[slot].held_blocks.load();
  }
  return blocks * kBlock;
}

Node::Busy Node::busy(unsigned device) const {
  simgpu::Engine engine;
  engine.attach(&state(device), link_->slot(), link_->clock());
  Busy busy = {};
  for (unsigned slot = 0; slot < simgpu::kMaxProcesses; ++slot) {
    if (processes().slots[slot].alive.load() != 0) busy.ns += engine.busy_ns(slot, &busy.at_ns);
  }
  return busy;
}

std::string Node::uuid(unsigned device) const { return simgpu::format_uuid(facts(device).uuid); }

void Node::set_state(unsigned device, std::uint32_t state) {
  simgpu::Message message{};
  message.op = simgpu::Op::kBreak;
  message.device = device;
  message.argument = state;
  EXPECT_EQ(link_->call(&message), 0);
}

void Node::set_faults(const std::string &rules) {
  const std::string path = directory_.path() + "/faults";
  const std::uint32_t before = processes().faults.load();
  if (rules.empty() && unlink(path.c_str()) != 0) return;
  if (!rules.empty()) {
    // Under its name only when it is complete. A number, as calls are counted anew only when the text is new.
    std::ofstream(path + ".new") << "# " << before << "\n" << rules << "\n";
    ASSERT_EQ(rename((path + ".new").c_str(), path.c_str()), 0);
  }
  for (int waited = 0; processes().faults.load() == before && waited < 5000; ++waited) sleep_ms(1);
  EXPECT_NE(processes().faults.load(), before) << "the node did not notice";
}

std::vector<std::string> Node::environment() const {
  return {"SIMGPU_NODE=" + directory_.path(), "SIMGPU_CONFIG=" + description_,
          "LD_LIBRARY_PATH=" + simgpu_directory() + "/13.0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"};
}

std::vector<DeviceSpec> devices_of(const Node &node, std::uint64_t limit) {
  std::vector<DeviceSpec> devices(node.devices());
  for (unsigned i = 0; i < node.devices(); ++i) {
    DeviceIdentity &identity = devices[i].identity;
    const simgpu::DeviceFacts &facts = node.facts(i);
    std::snprintf(identity.uuid, sizeof identity.uuid, "%s", node.uuid(i).c_str());
    std::snprintf(identity.pci_bus_id, sizeof identity.pci_bus_id, "%08x:%02x:%02x.0", facts.pci_domain, facts.pci_bus,
                  facts.pci_device);
    identity.memory_bytes = facts.memory_bytes;
    devices[i].memory_limit = std::min(limit, identity.memory_bytes);
  }
  return devices;
}

// ---- programs -------------------------------------------------------------------------------------------------------

std::string built(const std::string &path) { return std::string(VGPU_BUILD_DIR) + "/" + path; }

std::vector<std::string> environment_of_rank(const Node &node, const std::string &region) {
  std::vector<std::string> environment = node.environment();
  if (!region.empty()) {
    environment.push_back("VGPU_REGION=" + region);
#ifndef VGPU_LINKED_IN
    environment.push_back("LD_PRELOAD=" + built("libvgpu/libvgpu.so"));
#endif
  }
  return environment;
}

pid_t launch(const Launch &launch) {
  std::vector<std::string> arguments = launch.arguments;
  arguments.insert(arguments.begin(), launch.program);
  std::vector<std::string> environment = complete_environment(launch.environment);
  const std::vector<char *> argv = pointers_to(arguments), envp = pointers_to(environment);
  return spawn([&] {
    for (int fd = 0; fd < 3; ++fd) {
      if (launch.standard[fd] >= 0) dup2(launch.standard[fd], fd);
    }
    if (launch.third >= 0) {
      dup2(launch.third, 3);
      fcntl(3, F_SETFD, 0);  // where it had that number already, dup2 did nothing
    }
    execve(launch.program.c_str(), argv.data(), envp.data());
    return 127;
  });
}

std::uint64_t Answer::number(std::size_t index) const {
  return index < values.size() ? std::strtoull(values[index].c_str(), nullptr, 0) : 0;
}

Program::Program(const Node &node, const std::string &region, const std::vector<std::string> &environment,
                 const std::vector<std::string> &wrapper) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) std::abort();
  const ScopedFd complaints(
      open((scratch_.path() + "/stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  std::vector<std::string> words = wrapper;
  words.push_back(built("tests/hooks/hooks_client"));
  Launch client = {words.front(),
                   {words.begin() + 1, words.end()},
                   environment_of_rank(node, region),
                   {sockets[1], sockets[1], complaints.get()},
                   -1};
  client.environment.insert(client.environment.end(), environment.begin(), environment.end());
  pid_ = launch(client);
  close(sockets[1]);
  socket_ = sockets[0];
}

Program::~Program() {
  if (pid_ > 0) end(SIGKILL);
  close(socket_);
}

bool Program::tell(const std::string &line) {
  const std::string text = line + "\n";
  if (send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) return true;
  ADD_FAILURE() << "the program does not listen: " << line;
  return false;
}

Answer Program::ask(const std::string &line) { return tell(line) ? answer(line) : Answer{}; }

Answer Program::answer(const std::string &line) {
  std::string reply;
  for (char c = 0;;) {
    pollfd ready = {socket_, POLLIN, 0};
    if (poll(&ready, 1, 60'000) != 1 || recv(socket_, &c, 1, 0) != 1) {
      ADD_FAILURE() << "no answer to: " << line << (complaints().empty() ? "" : "; " + complaints().back());
      return {};
    }
    if (c == '\n') break;
    reply += c;
  }
  Answer answer;
  answer.values = words(reply);
  if (answer.values.empty()) return answer;
  answer.result = std::atoi(answer.values[0].c_str());
  answer.values.erase(answer.values.begin());
  return answer;
}

std::uint64_t Program::must(const std::string &line) {
  const Answer answer = ask(line);
  EXPECT_EQ(answer.result, 0) << line << (complaints().empty() ? "" : ": " + complaints().back());
  return answer.number();
}

void Program::end(int signal) {
  kill(pid_, signal);
  wait_for(pid_);
  pid_ = 0;
}

int Program::finish() {
  shutdown(socket_, SHUT_WR);
  const int status = wait_for(pid_);
  pid_ = 0;
  return status;
}

std::vector<std::string> Program::complaints() const {
  std::ifstream file(scratch_.path() + "/stderr");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// ---- HooksTest ------------------------------------------------------------------------------------------------------

Node &HooksTest::node() {
  static Node node(
      "context=64MiB; module=1MiB; reserved=16MiB; visibility_ms=0; memory=1040MiB; idle_ms=300;"
      "device; name=A; uuid=GPU-a0000001-1111-4111-8111-111111111111;"
      "device; name=B; uuid=GPU-b0000002-1111-4111-8111-111111111111; sms=40;"
      "device; name=C; uuid=GPU-c0000003-1111-4111-8111-111111111111; sms=100; memory=17GiB; visibility_ms=150");
  return node;
}

void HooksTest::make_region(const std::vector<DeviceSpec> &devices) {
  RegionSpec spec = make_spec(devices);
  for (const DeviceSpec &device : devices) spec.launch_hooks |= device.sm_percent < 100;
  const Error error = Region::create(directory_.path().c_str(), "7", spec);
  ASSERT_FALSE(error) << error.text;
  region_ = directory_.path() + "/7";
}

// Whatever a test did, its programs are gone now, and so is what they held.
void HooksTest::TearDown() {
  if (region_.empty()) return;
  unsigned reclaimed = 0;
  const Error error = sweep_region(region_.c_str(), Trust::root_or_self, &reclaimed);
  EXPECT_FALSE(error) << error.text;
  for (unsigned dev = 0; dev < node().devices(); ++dev) {
    for (int waited = 0; node().held(dev) != 0 && waited < 5000; ++waited) sleep_ms(1);
    EXPECT_EQ(node().held(dev), 0u) << "memory left behind on device " << dev;
  }
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(region_.c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  for (unsigned dev = 0; dev < snapshot.ndev(); ++dev) EXPECT_EQ(snapshot.device(dev).memory_used, 0u);
}

void HooksTest::change_limit(unsigned dev, std::uint64_t limit) {
  LimitChange change;
  change.dev = dev;
  change.memory_limit = limit;
  const Error error = change_limits(region_.c_str(), Trust::root_or_self, change);
  ASSERT_FALSE(error) << error.text;
}

std::unique_ptr<Program> HooksTest::start(const std::vector<std::string> &environment) {
  auto program = std::make_unique<Program>(node(), region_, environment);
  program->must("init");
  return program;
}

std::unique_ptr<Program> HooksTest::start_on(unsigned device, std::uint64_t *context) {
  auto program = start();
  const std::uint64_t made = program->make("cuCtxCreate_v2", device);
  if (context != nullptr) *context = made;
  return program;
}

std::uint64_t HooksTest::charged(unsigned dev) const {
  Snapshot snapshot;
  const Error error = Snapshot::read(region_.c_str(), Trust::root_or_self, Detail::memory, &snapshot);
  EXPECT_FALSE(error) << error.text;
  EXPECT_TRUE(snapshot.device(dev).ranks_add_up);
  return snapshot.device(dev).memory_used - snapshot.device(dev).idle;
}

std::uint64_t HooksTest::charged(unsigned dev, Kind kind) const {
  Snapshot snapshot;
  const Error error = Snapshot::read(region_.c_str(), Trust::root_or_self, Detail::memory, &snapshot);
  EXPECT_FALSE(error) << error.text;
  std::uint64_t sum = 0;
  for (unsigned rank = 0; rank < snapshot.ranks(); ++rank) sum += snapshot.memory(rank, dev, kind);
  return sum;
}

void HooksTest::expect_held(std::uint64_t bytes, unsigned dev) {
  EXPECT_EQ(charged(dev), bytes) << "the region, device " << dev;
  EXPECT_EQ(node().held(dev), bytes) << "the driver's books, device " << dev;
}

std::string HooksTest::refusal_line(const Refusal &refusal) {
  return "vgpu: job 7, GPU " + node().uuid(refusal.dev) + ": out of memory: " + refusal.used + " used + " +
         refusal.asked + " asked > " + refusal.limit + " limit" + refusal.held_by + "; ask for more with --gpu-mem";
}

std::string HooksTest::held_by_itself(const Program &program, const std::string &bytes) {
  return "; held by this process (pid " + std::to_string(program.pid()) + ") " + bytes;
}

}  // namespace vgpu::test
