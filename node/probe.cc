#include "probe.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/scoped.h"
#include "probe_error.h"
#include "read_until.h"

extern char **environ;

namespace vgpu::node {

namespace {

// vgpu-probe keeps the deadline itself. Should it be stopped or replaced by something else, we still come back.
constexpr unsigned kMargin_ms = 3000;

class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    // The caller's ignored and blocked signals are its own business.
    sigset_t signals;
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings &) = delete;
  SpawnSettings &operator=(const SpawnSettings &) = delete;

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Ours, without what would put libvgpu (or anything else) between NVML and the probe.
std::vector<char *> probe_environment() {
  std::vector<char *> kept;
  for (char **entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

std::string program_of(const ProbeOptions &options) {
  return options.program.empty() ? VGPU_PROBE_PROGRAM : options.program;
}

// `input_fd`: of the child, or -1 for none.
Error start(const ProbeOptions &options, const std::vector<std::string> &mode, const std::string &program, int input_fd,
            ScopedFd *output, pid_t *child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot create a pipe for %s", program.c_str());
  *output = ScopedFd(ends[0]);
  const ScopedFd input(ends[1]);

  std::vector<std::string> words = {program, "--deadline-ms", std::to_string(options.deadline_ms)};
  words.insert(words.end(), mode.begin(), mode.end());
  if (!options.nvml.empty()) words.insert(words.end(), {"--nvml", options.nvml});
  if (!options.hwloc_xml.empty()) words.insert(words.end(), {"--hwloc-xml", options.hwloc_xml});
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char *> environment = probe_environment();

  SpawnSettings settings;
  posix_spawn_file_actions_adddup2(&settings.actions_, input.get(), STDOUT_FILENO);
  if (input_fd < 0) {
    posix_spawn_file_actions_addopen(&settings.actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&settings.actions_, input_fd, STDIN_FILENO);
  }
  errno = posix_spawn(child, program.c_str(), &settings.actions_, &settings.attributes_, arguments.data(),
                      environment.data());
  if (errno != 0) return system_error("cannot start %s", program.c_str());
  return {};
}

// Ends and reaps the child. Somebody else may have reaped it before: then its PID may be anybody's by now.
void finish(pid_t child) {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0) kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
}

// An error, or lines until the one that counts them.
bool is_whole_answer(const std::string &text) {
  if (text.empty() || text.back() != '\n') return false;
  const std::size_t last = text.rfind('\n', text.size() - 2);
  return text.starts_with(kProbeErrorPrefix) || (last != text.npos && text.compare(last + 1, 4, "end ") == 0);
}

Error parse_answer(const std::string &program, const std::string &answer, Node *node) {
  Node found;
  if (parse_node(program, answer, &found)) {
    return make_error(Fault::foreign, "%s does not answer as vgpu-probe does; install slurm-vgpu anew",
                      program.c_str());
  }
  node->driver = std::move(found.driver);
  node->devices = std::move(found.devices);
  node->problems = std::move(found.problems);
  return {};
}

}  // namespace

Error run_probe(const ProbeOptions &options, const std::vector<std::string> &mode, std::string *answer) {
  const std::string program = program_of(options);
  const Deadline deadline(options.deadline_ms + kMargin_ms);
  ScopedFd output;
  pid_t child = -1;
  if (Error error = start(options, mode, program, -1, &output, &child)) return error;
  std::string text;
  const ReadEnd end = read_until(output.get(), deadline, &text);
  finish(child);
  switch (end) {
    case ReadEnd::complete:
      if (Error error = parse_probe_error(text)) return error;
      *answer = std::move(text);
      return {};
    case ReadEnd::late:
      return make_error(Fault::timeout, "%s did not end within %u ms; see what it waits for, and try again",
                        program.c_str(), options.deadline_ms + kMargin_ms);
    default:
      return make_error(Fault::foreign, "%s says more than a description of a node can hold", program.c_str());
  }
}

Error ProbeServer::start_if_needed() {
  if (answers_) return {};
  const std::string program = program_of(options_);
  if (child_ > 0 && waitpid(child_, nullptr, WNOHANG) == 0) {
    return make_error(Fault::timeout, "%s (process %d) hangs in the kernel; see what nvidia-smi says on this node",
                      program.c_str(), static_cast<int>(child_));
  }
  child_ = -1;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot create a pipe for %s", program.c_str());
  const ScopedFd input(ends[0]);
  questions_ = ScopedFd(ends[1]);
  return start(options_, {"--serve"}, program, input.get(), &answers_, &child_);
}

Error ProbeServer::ask(std::string *answer) {
  if (Error error = start_if_needed()) {
    stop();
    return error;
  }
  const std::string program = program_of(options_);
  const Deadline deadline(options_.deadline_ms);
  std::string text;
  Error error;
  if (write(questions_.get(), "?", 1) != 1) error = system_error("cannot ask %s", program.c_str());
  while (!error && !is_whole_answer(text)) {
    const ReadEnd end = read_some(answers_.get(), deadline, &text);
    if (end == ReadEnd::late) {
      error = make_error(Fault::timeout, "NVML did not answer within %u ms; see what nvidia-smi says on this node",
                         options_.deadline_ms);
    } else if (end != ReadEnd::more) {
      error = make_error(Fault::system, "%s ended while it asked NVML; see what nvidia-smi says on this node",
                         program.c_str());
    }
  }
  if (!error) error = parse_probe_error(text);
  if (error) {
    stop();
    return error;
  }
  *answer = std::move(text);
  return {};
}

void ProbeServer::stop() {
  constexpr unsigned kGrace_ms = 1000;
  questions_ = ScopedFd();
  answers_ = ScopedFd();
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  const Deadline deadline(kGrace_ms);
  while (waitpid(child_, nullptr, WNOHANG) == 0) {
    if (deadline.left_ms() == 0) return;  // looked after before the next one is started
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  child_ = -1;
}

Error probe_devices(const ProbeOptions &options, Node *node) {
  std::string answer;
  if (Error error = run_probe(options, {}, &answer)) return error;
  return parse_answer(program_of(options), answer, node);
}

}  // namespace vgpu::node
