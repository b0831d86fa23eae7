// simgpu-kernel: started by the first client of a node, never by hand in ordinary use. Its first process ends as soon as
// the node listens, so that whoever started it can wait for that; the node itself lives on in the background.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simgpu/kernel/server.h"
#include "simgpu/node/config.h"

namespace {

// A client may run without stdin, stdout or stderr. Nothing of ours may land on these numbers: they become /dev/null
// later.
void fill_standard_descriptors() {
  int null;
  do null = open("/dev/null", O_RDWR | O_CLOEXEC);
  while (null >= 0 && null < 3);
  if (null >= 3) close(null);
}

}  // namespace

int main() {
  // Every descriptor the starting client happened to leave open would otherwise stay open as long as the node.
  close_range(3, ~0u, 0);
  fill_standard_descriptors();
  const char *directory = getenv("SIMGPU_NODE");
  if (directory == nullptr) {
    fprintf(stderr, "simgpu-kernel: SIMGPU_NODE is not set; it names the node's directory\n");
    return 2;
  }
  simgpu::Server server;
  int claimed = server.claim(directory);
  if (claimed == EWOULDBLOCK) return 0;  // another one is there or on its way; whoever started us waits for its socket
  if (claimed != 0) {
    fprintf(stderr, "simgpu-kernel: %s: %s\n", directory, strerror(claimed));
    return 1;
  }
  simgpu::NodeConfig config;
  std::string error;
  if (!simgpu::load_node_config(directory, &config, &error)) {
    fprintf(stderr, "simgpu-kernel: %s\n", error.c_str());
    return 2;
  }
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return 1;
  pid_t child = fork();
  if (child < 0) return 1;
  if (child != 0) {
    close(ready[1]);
    char ok = 0;
    return read(ready[0], &ok, 1) == 1 ? 0 : 1;
  }
  close(ready[0]);
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);  // whatever the starting client had blocked
  // Signals meant for the clients' terminal or group are none of a kernel's business.
  for (int signal_number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTSTP}) signal(signal_number, SIG_IGN);
  if (!server.start(config)) return 1;
  (void)!chdir("/");
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  (void)!write(ready[1], "k", 1);
  close(ready[1]);
  for (int fd = 0; fd < 3; fd++) dup2(null, fd);
  server.run();
  _exit(0);
}
