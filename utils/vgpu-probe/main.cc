// vgpu-probe: prints this node's GPUs in the form of node.h, or one line with what went wrong (probe_error.h).
//
//   vgpu-probe [--processes | --serve | --measure UUID] [--nvml LIBRARY] [--hwloc-xml FILE] [--deadline-ms MS]
//
// --processes: who holds their memory instead, in the form of processes.h.
// --serve: the same for every byte on standard input, until that ends. Whoever asks keeps the deadline.
// --measure: what a context takes on that GPU instead, in the form of contexts_file.h. The only mode that uses a GPU.
//
// The first process only watches; a child of it touches the driver. A child that hangs is killed. One that hangs inside
// the kernel does not even die of SIGKILL: it is then left to init, and our own caller can still reap us.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/scoped.h"
#include "measure.h"
#include "node/contexts_file.h"
#include "node/inherited_files.h"
#include "node/locality.h"
#include "node/node.h"
#include "node/probe_error.h"
#include "node/processes.h"
#include "node/read_until.h"
#include "node/small_files.h"
#include "node/text_lines.h"
#include "nvml_probe.h"

namespace {

using namespace vgpu;

struct Options {
  std::string nvml = "libnvidia-ml.so.1";
  std::string hwloc_xml;
  unsigned deadline_ms = 10'000;
  bool processes = false;
  bool serve = false;
  std::string measure;  // a UUID

  const char *asked() const { return measure.empty() ? "NVML" : "the driver"; }
};

bool parse_options(int argc, char **argv, Options *options) {
  const option known[] = {{"nvml", required_argument, nullptr, 'n'},
                          {"processes", no_argument, nullptr, 'p'},
                          {"measure", required_argument, nullptr, 'm'},
                          {"hwloc-xml", required_argument, nullptr, 'x'},
                          {"deadline-ms", required_argument, nullptr, 'd'},
                          {"serve", no_argument, nullptr, 's'},
                          {}};
  for (int found; (found = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    if (found == 'n') {
      options->nvml = optarg;
    } else if (found == 'p') {
      options->processes = true;
    } else if (found == 's') {
      options->serve = true;
    } else if (found == 'm') {
      options->measure = optarg;
      if (!node::is_device_uuid(options->measure)) return false;
    } else if (found == 'x') {
      options->hwloc_xml = optarg;
    } else if (found == 'd') {
      const char *end = optarg + std::strlen(optarg);
      const auto [stop, trouble] = std::from_chars(optarg, end, options->deadline_ms);
      if (trouble != std::errc() || stop != end || options->deadline_ms > 3'600'000) return false;
    } else {
      return false;
    }
  }
  return optind == argc && options->processes + options->serve + !options->measure.empty() <= 1;
}

Error describe_node(const Options &options, std::string *text) {
  node::Node node;
  if (Error error = probe::probe_nvml(options.nvml, &node)) return error;
  if (Error error = find_localities(options.hwloc_xml, &node)) return error;
  *text = format_node(node);
  return {};
}

Error describe_processes(const Options &options, std::string *text) {
  probe::ProcessLister lister;
  if (Error error = lister.open(options.nvml)) return error;
  return lister.list(text);
}

Error describe_context(const Options &options, const std::string &empty_directory, std::string *text) {
  node::KnownContext figure;
  if (Error error = probe::measure_context(options.nvml, options.measure, empty_directory, &figure)) return error;
  *text = node::format_contexts({figure});
  return {};
}

// Made by the process that watches, which also removes it when the other one was killed.
class EmptyDirectory {
 public:
  Error make() {
    std::string path = "/tmp/vgpu-probe-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return system_error("cannot create a directory in /tmp");
    path_ = std::move(path);
    return {};
  }
  ~EmptyDirectory() {
    if (!path_.empty()) rmdir(path_.c_str());
  }
  const std::string &path() const { return path_; }

 private:
  std::string path_;
};

Error answer_to(const Options &options, const std::string &empty_directory, std::string *text) {
  if (!options.measure.empty()) return describe_context(options, empty_directory, text);
  return options.processes ? describe_processes(options, text) : describe_node(options, text);
}

// Where NVML is: it ends with whoever waits for its answer, and what it starts or prints by the way does not hold or spoil that.
void prepare_for_nvml() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core = {};
  setrlimit(RLIMIT_CORE, &no_core);
  const ScopedFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null || dup2(null.get(), STDOUT_FILENO) < 0) _exit(1);
}

// In the child.
[[noreturn]] void probe(const Options &options, const std::string &empty_directory, pid_t watcher, int answer) {
  prepare_for_nvml();
  if (getppid() != watcher) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);

  std::string text;
  const Error error = answer_to(options, empty_directory, &text);
  node::write_all(answer, error ? node::format_probe_error(error) : text);
  _exit(0);  // nothing of NVML's own that might want to hang at the end
}

[[noreturn]] void serve(const Options &options) {
  const ScopedFd answers(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  prepare_for_nvml();
  probe::ProcessLister lister;
  const Error unusable = lister.open(options.nvml);
  for (char question; read(STDIN_FILENO, &question, 1) == 1;) {
    std::string text;
    const Error error = unusable ? unusable : lister.list(&text);
    if (!node::write_all(answers.get(), error ? node::format_probe_error(error) : text)) break;
  }
  _exit(0);
}

// Returns false when the child is still there at the deadline. SIGCHLD is blocked.
bool wait_until(pid_t child, const node::Deadline &deadline, int *status) {
  sigset_t chld;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  for (;;) {
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended == child) return true;
    const int left = deadline.left_ms();
    if (left == 0) return false;
    const timespec timeout = {left / 1000, left % 1000 * 1'000'000L};
    sigtimedwait(&chld, nullptr, &timeout);
  }
}

Error hang_error(pid_t child, const Options &options) {
  constexpr unsigned kGrace_ms = 1000;
  kill(child, SIGKILL);
  int status = 0;
  const bool died = wait_until(child, node::Deadline(kGrace_ms), &status);
  return make_error(Fault::timeout, "%s did not answer within %u ms%s; see what nvidia-smi says on this node",
                    options.asked(), options.deadline_ms, died ? "" : " and hangs in the kernel");
}

Error end_error(int status, const Options &options) {
  if (WIFSIGNALED(status)) {
    return make_error(Fault::system, "%s crashed (%s); see what nvidia-smi says on this node", options.asked(),
                      strsignal(WTERMSIG(status)));
  }
  return make_error(Fault::system, "%s ended the probe (status %d); see what nvidia-smi says on this node",
                    options.asked(), WEXITSTATUS(status));
}

Error watch(const Options &options, std::string *answer) {
  const node::Deadline deadline(options.deadline_ms);
  sigset_t chld;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  sigprocmask(SIG_BLOCK, &chld, nullptr);

  EmptyDirectory no_mps;
  if (!options.measure.empty()) {
    if (Error error = no_mps.make()) return error;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot create a pipe for the probe");
  ScopedFd from_child(ends[0]);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) {
    close(ends[1]);
    return system_error("cannot create a process for the probe");
  }
  if (child == 0) probe(options, no_mps.path(), self, ends[1]);
  close(ends[1]);

  int status = 0;
  const node::ReadEnd end = read_until(from_child.get(), deadline, answer);
  if (end != node::ReadEnd::complete || !wait_until(child, deadline, &status)) return hang_error(child, options);
  if (answer->empty()) return end_error(status, options);
  return {};
}

constexpr std::string_view kUsage =
    "usage: vgpu-probe [--processes | --serve | --measure UUID] [--nvml LIBRARY] [--hwloc-xml FILE] [--deadline-ms "
    "MS]\n";
constexpr std::string_view kVersion = "vgpu-probe (slurm-vgpu) " VGPU_VERSION "\n";

}  // namespace

int main(int argc, char **argv) {
  // Should the driver never let go of the child, it must not hold on to anything of our caller's, such as a socket that
  // slurmd listens on.
  node::close_inherited_files();
  if (argc == 2 && std::string_view(argv[1]) == "--help") return node::write_all(STDOUT_FILENO, kUsage) ? 0 : 1;
  if (argc == 2 && std::string_view(argv[1]) == "--version") return node::write_all(STDOUT_FILENO, kVersion) ? 0 : 1;
  Options options;
  if (!parse_options(argc, argv, &options)) {
    node::write_all(STDERR_FILENO, kUsage);
    return 2;
  }
  if (options.serve) serve(options);
  std::string answer;
  const Error error = watch(options, &answer);
  if (error) answer = node::format_probe_error(error);
  return node::write_all(STDOUT_FILENO, answer) && !error && answer.rfind(node::kProbeErrorPrefix, 0) != 0 ? 0 : 1;
}
