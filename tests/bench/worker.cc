#include "worker.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "failure.h"

namespace bench {

namespace {

std::vector<char *> pointers(std::vector<std::string> &strings) {
  std::vector<char *> result;
  for (std::string &string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Worker::Worker(const std::vector<std::string> &arguments, const std::map<std::string, std::string> &environment,
               const std::vector<std::string> &launcher) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Failure("pipe: %s", std::strerror(errno));
  std::vector<std::string> settings;
  for (char **old = environ; *old != nullptr; ++old) {
    const std::string name(*old, std::strcspn(*old, "="));
    if (environment.count(name) == 0) settings.push_back(*old);
  }
  for (const auto &[name, value] : environment) settings.push_back(name + "=" + value);
  std::vector<char *> environment_pointers = pointers(settings);
  std::vector<std::string> line = launcher;
  line.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  line.push_back("work");
  line.insert(line.end(), arguments.begin(), arguments.end());
  std::vector<char *> line_pointers = pointers(line);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int fault =
      posix_spawnp(&pid_, line_pointers[0], &actions, nullptr, line_pointers.data(), environment_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  output_ = ends[0];
  if (fault != 0) throw Failure("posix_spawn: %s", std::strerror(fault));
}

Worker::Worker(Worker &&other) noexcept
    : pid_(std::exchange(other.pid_, 0)), output_(std::exchange(other.output_, -1)) {}

Worker::~Worker() {
  if (output_ >= 0) close(output_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

double Worker::result() {
  std::string text;
  char buffer[256];
  for (ssize_t length; (length = read(output_, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(length));
  }
  int status = 0;
  waitpid(std::exchange(pid_, 0), &status, 0);
  if (status != 0) throw Failure("a worker failed");
  return text.empty() ? 0 : std::stod(text);
}

}  // namespace bench
