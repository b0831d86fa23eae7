#include "support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace vgpu::test {

using namespace region;

namespace {

constexpr char kNodeDescription[] =
    "memory=1040MiB; reserved=16MiB; context=64MiB; module=2MiB; visibility_ms=0; idle_ms=300;"
    "device; name=Test GPU A; device; name=Test GPU B; sms=40";
constexpr int kPatience = 20'000;  // ms

std::string own_directory() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }

std::vector<char *> pointers(Words &words) {
  std::vector<char *> result;
  for (std::string &word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

void set_close_on_exec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

}  // namespace

std::string build_path(const std::string &below) { return own_directory() + "/../../" + below; }
std::string source_path(const std::string &below) { return std::string(PRELOAD_SOURCE) + "/" + below; }
std::string program(const std::string &name) { return build_path("tests/libvgpu/programs/" + name); }
std::string library(const std::string &name) { return build_path("tests/libvgpu/libraries/" + name + ".so"); }
std::string libvgpu() { return std::filesystem::canonical(build_path("libvgpu/libvgpu.so")); }

std::string system_library(const std::string &name) {
  for (const char *directory :
       {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/", "/usr/lib/"}) {
    if (access((directory + name).c_str(), R_OK) == 0) return directory + name;
  }
  return "";
}

std::string read_text(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) ADD_FAILURE() << path << " cannot be written";
}

Words lines_of(const std::string &text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string join(const Words &words, const std::string &separator) {
  std::string text;
  for (const std::string &word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

Words hooked_symbols(bool metered) {
  struct Row {
    const char *symbol;
    std::string rule;
  };
  const Row rows[] = {
#define CUDA_HOOK(symbol, name, since, stream, family, rule) {#symbol, #rule},
#define NVML_HOOK(symbol, family, rule) {#symbol, #rule},
#define CUDA_CALL(symbol)
#define NVML_CALL(symbol)
#include "driver/table.def"
#undef CUDA_CALL
#undef NVML_CALL
#undef CUDA_HOOK
#undef NVML_HOOK
  };
  Words symbols;
  for (const Row &row : rows) {
    if (metered || (row.rule != "meter" && row.rule != "follow")) symbols.push_back(row.symbol);
  }
  return symbols;
}

bool Result::succeeded() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

std::ostream &operator<<(std::ostream &stream, const Result &result) {
  if (WIFSIGNALED(result.status)) {
    stream << "killed by signal " << WTERMSIG(result.status);
  } else {
    stream << "exit status " << WEXITSTATUS(result.status);
  }
  return stream << "\nstandard output:\n" << result.out << "standard error:\n" << result.err;
}

Running::Running(const Words &command, const Environment &environment) {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) std::abort();
  error_file_ = std::string(std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp") + "/vgpu-stderr-XXXXXX";
  const int errors = mkstemp(error_file_.data());
  set_close_on_exec(errors);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, down[0], 0);
  posix_spawn_file_actions_adddup2(&actions, up[1], 1);
  posix_spawn_file_actions_adddup2(&actions, errors, 2);
  Words arguments = command, settings;
  for (const auto &[name, value] : environment) settings.push_back(name + "=" + value);
  const int failed =
      posix_spawnp(&pid_, command[0].c_str(), &actions, nullptr, pointers(arguments).data(), pointers(settings).data());
  if (failed != 0) {
    ADD_FAILURE() << command[0] << " cannot be run: " << std::strerror(failed);
    pid_ = -1;
  }
  posix_spawn_file_actions_destroy(&actions);
  close(errors);
  close(down[0]);
  close(up[1]);
  to_ = down[1];
  from_ = up[0];
}

Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (to_ >= 0) close(to_);
  close(from_);
  unlink(error_file_.c_str());
}

bool Running::read_some(int milliseconds) {
  pollfd waiting = {from_, POLLIN, 0};
  if (poll(&waiting, 1, milliseconds) <= 0) return false;
  char buffer[65536];
  const ssize_t length = read(from_, buffer, sizeof buffer);
  if (length <= 0) return false;
  result_.out.append(buffer, static_cast<std::size_t>(length));
  return true;
}

bool Running::says(const std::string &line) {
  for (;;) {
    const std::size_t end = result_.out.find('\n', seen_);
    if (end == std::string::npos) {
      if (!read_some(kPatience)) return false;
      continue;
    }
    const std::string said = result_.out.substr(seen_, end - seen_);
    seen_ = end + 1;
    if (said == line) return true;
  }
}

void Running::tell(const std::string &line) {
  const std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) < 0)
    ADD_FAILURE() << "the program does not listen: " << std::strerror(errno);
}

Result Running::finish() {
  if (pid_ <= 0) return result_;
  close(to_);
  to_ = -1;
  while (read_some(kPatience)) continue;
  // Its output has ended, or it has hung: then it never will.
  for (int waited = 0; waitpid(pid_, &result_.status, WNOHANG) == 0; ++waited) {
    if (waited == kPatience) {
      ADD_FAILURE() << "the program does not end";
      kill(pid_, SIGKILL);
    }
    usleep(1000);
  }
  pid_ = -1;
  result_.err = read_text(error_file_);
  return result_;
}

Result run(const Words &command, const Environment &environment) { return Running(command, environment).finish(); }

Node::Node(const std::string &level) : level_(level) {
  std::istringstream first(control("devices"));
  std::string index;
  first >> index >> uuid_;
  if (uuid_.empty()) ADD_FAILURE() << "the simulated node does not start";
}

Node::~Node() { control("stop"); }

std::string Node::driver_directory() const {
  return std::filesystem::canonical(build_path("simgpu/" + level_)).string();
}

Environment Node::native() const {
  const char *temporary = std::getenv("TMPDIR");
  return {{"PATH", "/usr/local/bin:/usr/bin:/bin"},
          {"HOME", scratch_.path()},
          {"LANG", "C.UTF-8"},
          {"TMPDIR", temporary != nullptr ? temporary : "/tmp"},
          {"SIMGPU_NODE", scratch_.path() + "/node.d"},
          {"SIMGPU_CONFIG", kNodeDescription},
          {"SIMGPU_BUILD", std::filesystem::canonical(build_path("simgpu")).string()},
          {"SIMGPU_KERNEL", std::filesystem::canonical(build_path("simgpu/simgpu-kernel")).string()},
          {"LD_LIBRARY_PATH", driver_directory()}};
}

Environment Node::preloaded(const Words &before, const Words &after) const {
  Words libraries = before;
  libraries.push_back(libvgpu());
  libraries.insert(libraries.end(), after.begin(), after.end());
  Environment environment = native();
  environment["LD_PRELOAD"] = join(libraries, ":");
  environment["VGPU_REGION"] = region_path();
  return environment;
}

std::string Node::control(const std::string &verb) const {
  return run({build_path("simgpu/simgpu-ctl"), verb}, native()).out;
}

void Node::create_metered_job() {
  const Error error = Region::remove(scratch_.path().c_str(), "job");
  if (error) ADD_FAILURE() << error.text;
  create_job(kLimit, 50);
}

void Node::create_job(std::uint64_t limit, unsigned sm_percent) {
  DeviceSpec device;
  std::snprintf(device.identity.uuid, sizeof device.identity.uuid, "%s", uuid_.c_str());
  device.identity.memory_bytes = kDeviceBytes;
  device.memory_limit = limit;
  device.sm_percent = sm_percent;
  RegionSpec spec;
  spec.launch_hooks = sm_percent < 100;
  spec.job_id = 7;
  spec.uid = geteuid();
  spec.ndev = 1;
  spec.devices = &device;
  const Error error = Region::create(scratch_.path().c_str(), "job", spec);
  if (error) ADD_FAILURE() << error.text;
}

std::uint64_t Node::charged(pid_t pid) const {
  Snapshot snapshot;
  const Error error = Snapshot::read(region_path().c_str(), Trust::root_or_self, Detail::memory, &snapshot);
  if (error) ADD_FAILURE() << error.text;
  std::uint64_t sum = 0;
  for (unsigned rank = 0; rank < snapshot.ranks(); ++rank) {
    if (snapshot.rank(rank).owner.pid != static_cast<std::uint64_t>(pid)) continue;
    for (const Kind kind : {Kind::context, Kind::module, Kind::data, Kind::other})
      sum += snapshot.memory(rank, 0, kind);
  }
  return sum;
}

std::uint64_t Node::held(pid_t pid) const {
  std::istringstream lines(control("usage"));
  std::uint64_t sum = 0, bytes = 0, contexts = 0, launches = 0;
  int index = 0;
  pid_t owner = 0;
  while (lines >> index >> owner >> bytes >> contexts >> launches) {
    if (pid == 0 || owner == pid) sum += bytes;
  }
  return sum;
}

bool Node::nothing_held() const {
  for (int tries = 0; tries < 200; ++tries) {
    if (held() == 0) return true;
    usleep(10'000);
  }
  return false;
}

void LevelTest::expect_charged(const Words &command, const Environment &environment) {
  Running client(command, environment);
  if (!client.says("holding")) {
    ADD_FAILURE() << join(command, " ") << ": " << client.finish();
    return;
  }
  EXPECT_EQ(kContextBytes + kHeldBytes, node_.held(client.pid())) << join(command, " ");
  EXPECT_EQ(kContextBytes + kHeldBytes, node_.charged(client.pid())) << join(command, " ");
  const Result result = client.finish();
  EXPECT_TRUE(result.succeeded()) << join(command, " ") << ": " << result;
  EXPECT_NE(std::string::npos, result.out.find("over 2\n")) << join(command, " ") << ": " << result;
  EXPECT_NE(std::string::npos, result.err.find("vgpu: job 7, GPU GPU-")) << join(command, " ") << ": " << result;
}

}  // namespace vgpu::test
