#include "nvml_support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace vgpu::test {

using namespace region;

namespace {

constexpr char kNode[] =
    "context=4MiB; reserved=0; memory=4GiB; idle_ms=60000; visibility_ms=0;"
    "device; uuid=GPU-a0000000-0000-4000-8000-000000000001; name=Fast;"
    "device; uuid=GPU-a0000000-0000-4000-8000-000000000002; name=Slow; visibility_ms=80;"
    "device; uuid=GPU-a0000000-0000-4000-8000-000000000003; name=Never; visibility_ms=600000";

std::string simgpu_directory() { return program_directory() + "/../../simgpu"; }

}  // namespace

std::string program_directory() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }
std::string libvgpu() { return program_directory() + "/../../libvgpu/libvgpu.so"; }

Job::Job(std::uint64_t memory_limit) : directory_(parent_.path() + "/job") {
  std::vector<DeviceSpec> devices(3);
  for (unsigned i = 0; i < devices.size(); ++i) {
    std::snprintf(devices[i].identity.uuid, sizeof devices[i].identity.uuid,
                  "GPU-a0000000-0000-4000-8000-00000000000%u", i + 1);
    devices[i].identity.memory_bytes = kNodeMemory;
    devices[i].memory_limit = memory_limit;
  }
  if (const Error error = Region::create(parent_.path().c_str(), "job", make_spec(devices))) {
    ADD_FAILURE() << error.text;
  }
}

std::uint64_t Job::used(unsigned dev) const {
  Snapshot snapshot;
  EXPECT_FALSE(Snapshot::read(directory_.c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  return snapshot.device(dev).memory_used;
}

std::uint64_t Job::noted_host_pid(pid_t pid) const {
  Snapshot snapshot;
  EXPECT_FALSE(Snapshot::read(directory_.c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  for (unsigned i = 0; i < snapshot.ranks(); ++i) {
    if (snapshot.rank(i).owner.pid == static_cast<std::uint64_t>(pid)) return snapshot.rank(i).info.host_pid;
  }
  ADD_FAILURE() << "no rank calls itself " << pid;
  return 0;
}

std::vector<std::uint64_t> Job::noted_host_pids() const {
  Snapshot snapshot;
  EXPECT_FALSE(Snapshot::read(directory_.c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  std::vector<std::uint64_t> pids;
  for (unsigned i = 0; i < snapshot.ranks(); ++i) pids.push_back(snapshot.rank(i).info.host_pid);
  std::sort(pids.begin(), pids.end());
  return pids;
}

Client::Client(const Job *job, Where where, const std::map<std::string, std::string> &settings) {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) std::abort();
  const std::string program = program_directory() + "/../hooks/nvml_client";
  pid_ = fork();
  if (pid_ == 0) {
    dup2(down[0], 0);
    dup2(up[1], 1);
    for (const auto &[name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    if (job != nullptr) {
      setenv("VGPU_REGION", job->directory().c_str(), 1);
      setenv("LD_PRELOAD", libvgpu().c_str(), 1);
    }
    if (where == Where::pid_namespace) {
      execlp("unshare", "unshare", "--pid", "--fork", "--kill-child", program.c_str(), nullptr);
    } else {
      execl(program.c_str(), program.c_str(), nullptr);
    }
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_ = down[1];
  from_ = up[0];
}

Client::~Client() {
  if (pid_ > 0) kill_now();
  close(to_);
  close(from_);
}

void Client::kill_now() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Client::tell(const std::string &line) {
  const std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) < 0) ADD_FAILURE() << "the client does not listen: " << line;
}

std::string Client::answer() {
  std::string text;
  for (char c;;) {
    pollfd waiting{from_, POLLIN, 0};
    if (poll(&waiting, 1, 30000) == 0) {
      ADD_FAILURE() << "client " << pid_ << " did not answer within 30 s";
      return "none";
    }
    if (read(from_, &c, 1) != 1 || c == '\n') return text;
    text += c;
  }
}

// In a namespace the client is the only child of `unshare`, which is what we started.
pid_t Client::host_pid() const {
  std::ifstream children("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children");
  pid_t child = 0;
  return children >> child ? child : pid_;
}

std::string ctl(const std::string &arguments) {
  FILE *pipe = popen((simgpu_directory() + "/simgpu-ctl " + arguments).c_str(), "re");
  std::string out;
  char buffer[4096];
  for (size_t n; pipe != nullptr && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  if (pipe != nullptr) pclose(pipe);
  return out;
}

std::uint64_t held_bytes(unsigned dev, pid_t pid) {
  std::istringstream lines(ctl("usage"));
  std::uint64_t bytes = 0, contexts = 0, launches = 0, sum = 0;
  unsigned index = 0;
  pid_t owner = 0;
  while (lines >> index >> owner >> bytes >> contexts >> launches) {
    if (index == dev && owner == pid) sum += bytes;
  }
  return sum;
}

void wait_until_visible(unsigned dev, const std::vector<const Client *> &clients) {
  Client stranger(nullptr);
  for (const Client *client : clients) {
    const std::string pid = " " + std::to_string(client->host_pid()) + "=";
    for (unsigned tries = 0;; ++tries) {
      const std::string list = stranger.ask("list ComputeRunningProcesses " + std::to_string(dev) + " 1024 16");
      if (list.find(pid) != std::string::npos) break;
      ASSERT_LT(tries, 1000u) << pid << " is not in " << list;
      sleep_ms(10);
    }
  }
}

std::string as_listed(unsigned dev, const std::vector<const Client *> &clients) {
  std::vector<std::string> entries;
  for (const Client *client : clients) {
    const pid_t pid = client->host_pid();
    entries.push_back(std::to_string(pid) + "=" + std::to_string(held_bytes(dev, pid)));
  }
  std::sort(entries.begin(), entries.end());
  std::string text;
  for (const std::string &entry : entries) text += " " + entry;
  return text;
}

std::string in_order(const std::string &answer, unsigned fields) {
  std::istringstream in(answer);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  if (words.size() > fields) std::sort(words.begin() + fields, words.end());
  std::string text;
  for (const std::string &word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace vgpu::test

// Every test program has a node of its own and ends it.
int main(int argc, char **argv) {
  using namespace vgpu::test;
  signal(SIGPIPE, SIG_IGN);
  TemporaryDirectory node;
  setenv("SIMGPU_NODE", node.path().c_str(), 1);
  setenv("SIMGPU_CONFIG", kNode, 1);
  setenv("SIMGPU_BUILD", simgpu_directory().c_str(), 1);
  const std::string level = simgpu_directory() + "/13.0";
  const char *path = std::getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", path != nullptr ? (level + ":" + path).c_str() : level.c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  ctl("devices");  // outside any namespace that a test may enter
  const int result = RUN_ALL_TESTS();
  ctl("stop");
  sleep_ms(100);
  return result;
}
