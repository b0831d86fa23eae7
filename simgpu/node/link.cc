#include "simgpu/node/link.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "simgpu/node/counted_call.h"
#include "simgpu/node/fault_word.h"
#include "simgpu/node/socket.h"

namespace simgpu {
namespace {

// The kernel process's program lies beside the folders of the libraries, wherever the build put them.
std::string kernel_program() {
  if (const char *given = getenv("SIMGPU_KERNEL")) return given;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void *>(&kernel_program), &info) == 0 || info.dli_fname == nullptr) return "";
  char *real = realpath(info.dli_fname, nullptr);
  std::string path = real != nullptr ? real : info.dli_fname;
  free(real);
  for (int up = 0; up < 2; up++) {
    path = path.substr(0, path.find_last_of('/'));
    std::string candidate = path + "/simgpu-kernel";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

// Starts the kernel process and returns when it listens. It gets nothing of our environment but the node's own
// variables: above all no LD_PRELOAD, or it would itself be a client of whatever is being tested.
int start_kernel(const std::string &directory, std::string *error) {
  std::string program = kernel_program();
  if (program.empty()) {
    *error = "simgpu-kernel: not found beside the simulated driver; set SIMGPU_KERNEL";
    return ENOENT;
  }
  std::string node = "SIMGPU_NODE=" + directory;
  auto handed_on = [](const std::string &name) {
    const char *value = getenv(name.c_str());
    return value != nullptr ? name + "=" + value : "SIMGPU_NONE=";
  };
  std::string description = handed_on("SIMGPU_CONFIG"), whims = handed_on("SIMGPU_WHIMS");
  char *environment[] = {node.data(), description.data(), whims.data(), nullptr};
  char *arguments[] = {program.data(), nullptr};
  pid_t child;
  int rc = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment);
  if (rc != 0) {
    *error = program + ": " + strerror(rc);
    return rc;
  }
  // The program forks itself away once it listens; its first process ends then, with what went wrong as its status.
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    *error = program + ": could not start the node in " + directory;
    return EIO;
  }
  return 0;
}

int try_connect(const std::string &directory) {
  SocketAddress address(directory, "kernel.sock");
  if (!address.valid()) return -1;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int bytes = kMaxMessageBytes;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  if (::connect(fd, reinterpret_cast<const sockaddr *>(&address.address()), sizeof(sockaddr_un)) == 0) return fd;
  close(fd);
  return -1;
}

void *map_shared(int fd, size_t *bytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size == 0) return nullptr;
  *bytes = static_cast<size_t>(info.st_size);
  void *map = mmap(nullptr, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (map == MAP_FAILED) return nullptr;
  // A forked child is not a client; it must not be able to disturb its parent's device.
  madvise(map, *bytes, MADV_DONTFORK);
  madvise(map, *bytes, MADV_DONTDUMP);
  return map;
}

}  // namespace

std::string node_directory() {
  const char *given = getenv("SIMGPU_NODE");
  std::string directory = "/run/simgpu";
  if (given != nullptr && *given != '\0') {
    directory = given;
  } else if (access(directory.c_str(), F_OK) != 0) {
    directory = "/tmp/simgpu-" + std::to_string(geteuid());
  }
  // Others may run clients on the node, as on a real one; the sticky bit keeps them from removing its socket.
  if (mkdir(directory.c_str(), 01777) == 0) (void)!chmod(directory.c_str(), 01777);
  char *real = realpath(directory.c_str(), nullptr);
  if (real != nullptr) directory = real;
  free(real);
  return directory;
}

int NodeLink::connect(bool is_cuda, std::string *error) {
  std::string directory = node_directory();
  // A node that ends in the very moment we connect answers nothing; the next round starts a fresh one. One that another
  // client started, and was killed before it listened, is waited for.
  for (int round = 0; round < 400; round++) {
    if (round > 0) usleep(25000);
    socket_ = try_connect(directory);
    if (socket_ < 0) {
      int lock = open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (lock < 0) {
        *error = directory + ": " + strerror(errno);
        return errno;
      }
      (void)!fchmod(lock, 0666);
      while (flock(lock, LOCK_EX) != 0 && errno == EINTR) continue;
      socket_ = try_connect(directory);
      int rc = 0;
      if (socket_ < 0) {
        rc = start_kernel(directory, error);
        if (rc == 0) socket_ = try_connect(directory);
      }
      close(lock);
      if (rc != 0) return rc;
    }
    if (socket_ < 0) continue;
    int rc = hello(is_cuda, error);
    if (rc != EPIPE) return rc;
    close(socket_);
    socket_ = -1;
  }
  *error = directory + ": the node's kernel process does not answer";
  return ETIMEDOUT;
}

int NodeLink::hello(bool is_cuda, std::string *error) {
  Message message{};
  message.op = Op::kHello;
  message.argument = is_cuda ? 1 : 0;
  std::vector<int> fds;
  if (!send_message(socket_, message, nullptr, {}) || !receive_message(socket_, &message, nullptr, &fds)) return EPIPE;
  int rc = message.status;
  slot_ = message.argument;
  generation_ = static_cast<uint32_t>(message.id);
  size_t bytes = 0;
  if (rc == 0 && fds.size() == 2 + 2 * message.device) {
    node_ = static_cast<NodeState *>(map_shared(fds[0], &bytes));
    clock_ = static_cast<ClockPage *>(map_shared(fds[1], &bytes));
    for (size_t i = 2; i + 1 < fds.size() && node_ != nullptr; i += 2) {
      LinkedDevice device;
      device.state = static_cast<DeviceState *>(map_shared(fds[i], &bytes));
      if (is_cuda) device.bytes = static_cast<char *>(map_shared(fds[i + 1], &bytes));
      if (device.state == nullptr || (is_cuda && device.bytes == nullptr)) rc = ENOMEM;
      devices_.push_back(device);
    }
    if (node_ == nullptr || clock_ == nullptr) rc = ENOMEM;
    if (rc == 0) set_node_fault_word(&node_->faults);
    if (rc == 0 && node_->count_calls != 0) set_counted_slot(&node_->slots[slot_]);
  } else if (rc == 0) {
    rc = EPROTO;
  }
  for (int fd : fds) close(fd);
  if (rc != 0) *error = std::string("the node refused this process: ") + strerror(rc);
  return rc;
}

int NodeLink::call(Message *message, std::vector<uint32_t> *blocks, int fd_in, int *fd_out) {
  std::lock_guard<std::mutex> guard(mutex_);
  message->block_count = blocks != nullptr ? static_cast<uint32_t>(blocks->size()) : 0;
  std::vector<int> fds;
  if (fd_in >= 0) fds.push_back(fd_in);
  if (!send_message(socket_, *message, blocks != nullptr ? blocks->data() : nullptr, fds)) return EPIPE;
  fds.clear();
  if (!receive_message(socket_, message, blocks, &fds)) return EPIPE;
  for (size_t i = 0; i < fds.size(); i++) {
    if (i == 0 && fd_out != nullptr)
      *fd_out = fds[0];
    else
      close(fds[i]);
  }
  return message->status;
}

}  // namespace simgpu
