#include "simgpu/kernel/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "simgpu/node/socket.h"

namespace simgpu {
namespace {

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

constexpr uint64_t kVirtualStartNs = 1000000000;

void *make_memory(const char *name, size_t bytes, int *fd) {
  *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0 || ftruncate(*fd, static_cast<off_t>(bytes)) != 0) return nullptr;
  // Clients may write, but none may take the ground away from under the others.
  fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void *map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
  return map == MAP_FAILED ? nullptr : map;
}

void read_cgroup(pid_t pid, char (&path)[256]) {
  path[0] = '\0';
  FILE *file = fopen(("/proc/" + std::to_string(pid) + "/cgroup").c_str(), "re");
  if (file == nullptr) return;
  char line[512];
  while (fgets(line, sizeof line, file) != nullptr)
    if (strncmp(line, "0::", 3) == 0)
      snprintf(path, sizeof path, "%.*s", static_cast<int>(strcspn(line + 3, "\n")), line + 3);
  fclose(file);
}

void watch(int poll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

// The clients' own lock does not do: it goes with the client that holds it, which may be killed while we start.
int Server::claim(const std::string &directory) {
  directory_ = directory;
  claim_ = open((directory + "/kernel.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (claim_ < 0) return errno;
  (void)!fchmod(claim_, 0666);
  return flock(claim_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

// False when somebody removed the node's directory: what is there now under its name belongs to another node.
bool Server::claim_holds() const {
  struct stat ours {
  }, there{};
  return fstat(claim_, &ours) == 0 && stat((directory_ + "/kernel.lock").c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

bool Server::start(const NodeConfig &config) {
  config_ = config;
  int fd;
  node_ = static_cast<NodeState *>(make_memory("simgpu-node", sizeof(NodeState), &fd));
  if (node_ == nullptr) {
    fprintf(stderr, "simgpu: node state: %s\n", strerror(errno));
    return false;
  }
  descriptors_.push_back(fd);
  node_->magic = kMagic;
  node_->version = kLayoutVersion;
  node_->device_count = static_cast<uint32_t>(config.devices.size());
  node_->kernel_pid = getpid();
  node_->nvml = config.nvml;
  node_->count_calls = config.count_calls;
  node_->slots[0].alive.store(1);  // our own, for objects that only a descriptor keeps
  node_->slots[0].host_pid = getpid();
  node_->slot_high_water.store(1);
  if (!make_clock()) {
    fprintf(stderr, "simgpu: %s/clock: %s\n", directory_.c_str(), strerror(errno));
    return false;
  }
  for (uint32_t i = 0; i < config.devices.size(); i++)
    if (!make_device(i, config.devices[i], config.broken[i])) return false;
  shares_ = std::make_unique<Shares>(devices_, bytes_);

  SocketAddress address(directory_, "kernel.sock");
  unlink((directory_ + "/kernel.sock").c_str());
  listen_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t old_mask = umask(0);
  bool bound = bind(listen_, reinterpret_cast<const sockaddr *>(&address.address()), sizeof(sockaddr_un)) == 0;
  umask(old_mask);
  if (!bound || listen(listen_, 1024) != 0) {
    fprintf(stderr, "simgpu: %s/kernel.sock: %s\n", directory_.c_str(), strerror(errno));
    return false;
  }
  poll_ = epoll_create1(EPOLL_CLOEXEC);
  watch(poll_, listen_);
  watch_faults();
  return true;
}

// A file of its own, so that others than clients can read it too. One that an earlier node left is not written to: who
// still has it open keeps that node's last time.
bool Server::make_clock() {
  std::string path = directory_ + "/clock";
  unlink(path.c_str());
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 || fchmod(fd, 0666) != 0 || ftruncate(fd, 4096) != 0) return false;
  void *map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  descriptors_.push_back(fd);
  clock_ = static_cast<ClockPage *>(map);
  clock_->mode = config_.clock;
  clock_->virtual_ns.store(kVirtualStartNs);
  clock_->magic = kClockMagic;
  return true;
}

bool Server::make_device(uint32_t index, const DeviceFacts &facts, bool broken) {
  auto blocks = static_cast<uint32_t>((facts.memory_bytes - facts.reserved_bytes) / kBlockBytes);
  int state_fd, bytes_fd;
  auto *state = static_cast<DeviceState *>(make_memory("simgpu-device", device_state_bytes(blocks), &state_fd));
  auto *bytes = static_cast<char *>(make_memory("simgpu-memory", blocks * kBlockBytes, &bytes_fd));
  if (state == nullptr || bytes == nullptr) {
    fprintf(stderr, "simgpu: device %u: %s\n", index, strerror(errno));
    return false;
  }
  state->magic = kMagic;
  state->version = kLayoutVersion;
  state->index = index;
  state->block_count = blocks;
  state->facts = facts;
  state->broken.store(broken ? 1 : 0);
  state->schedule.epoch_ns = clock_->now_ns();
  state->schedule.buffers[0][0][offsetof(Schedule, now_ns) / sizeof(uint64_t)].store(state->schedule.epoch_ns);
  engines_.push_back(std::make_unique<Engine>());
  engines_.back()->attach(state, 0, clock_);
  devices_.push_back(state);
  bytes_.push_back(bytes);
  descriptors_.push_back(state_fd);
  descriptors_.push_back(bytes_fd);
  return true;
}

void Server::run() {
  for (;;) {
    epoll_event events[64];
    bool idle = clients_.empty();
    int count = epoll_wait(poll_, events, 64, idle ? static_cast<int>(config_.idle_ms) : -1);
    if (count < 0 && errno != EINTR) return;
    if (count == 0 && idle && try_to_end()) return;
    for (int i = 0; i < count; i++) {
      if (events[i].data.fd == listen_)
        accept_client();
      else if (events[i].data.fd == notices_)
        directory_changed();
      else
        client_ready(events[i].data.fd);
    }
  }
}

// Ends only while holding the lock under which clients start a node, so that none of them talks to a node that is ending.
bool Server::try_to_end() {
  int lock = open((directory_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return false;
  }
  bool ours = claim_holds();
  if (ours) unlink((directory_ + "/kernel.sock").c_str());
  accept_client();
  if (clients_.empty()) {
    if (ours) unlink((directory_ + "/clock").c_str());
    return true;  // the lock goes with us
  }
  // Somebody got in at the last moment: stay for him and for whoever asks under the name again.
  SocketAddress address(directory_, "kernel.sock");
  int again = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (ours && bind(again, reinterpret_cast<const sockaddr *>(&address.address()), sizeof(sockaddr_un)) == 0 &&
      listen(again, 1024) == 0) {
    (void)!chmod((directory_ + "/kernel.sock").c_str(), 0777);
    epoll_ctl(poll_, EPOLL_CTL_DEL, listen_, nullptr);
    close(listen_);
    listen_ = again;
    watch(poll_, listen_);
  } else {
    close(again);
  }
  if (lock >= 0) close(lock);
  return false;
}

void Server::accept_client() {
  for (;;) {
    int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    int bytes = kMaxMessageBytes;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    clients_.emplace(fd, Client{});
    watch(poll_, fd);
  }
}

void Server::client_ready(int fd) {
  auto it = clients_.find(fd);
  if (it == clients_.end()) return;
  Message message{};
  std::vector<uint32_t> blocks;
  std::vector<int> fds;
  // Whoever writes into a descriptor that merely names an object is not listened to.
  if (it->second.share != 0 || !receive_message(fd, &message, &blocks, &fds)) {
    client_gone(fd);
  } else {
    answer(fd, &it->second, &message, &blocks, &fds);
  }
  for (int extra : fds) close(extra);
}

void Server::client_gone(int fd) {
  Client client = clients_[fd];
  clients_.erase(fd);
  close(fd);
  if (client.share != 0) {
    std::erase_if(end_by_inode_, [fd](const auto &entry) { return entry.second == fd; });
    shares_->descriptor_closed(client.share);
  } else if (client.said_hello) {
    reclaim(client.slot);
  }
}

// The moment a kernel driver closes the last file of a process. Shared objects first: afterwards every block that still
// bears the slot's number is the dead process's alone.
void Server::reclaim(uint32_t slot) {
  node_->slots[slot].generation.fetch_add(1, std::memory_order_relaxed);
  shares_->process_gone(slot);
  for (size_t i = 0; i < devices_.size(); i++) {
    DeviceState *device = devices_[i];
    DeviceSlot &books = device->slots[slot];
    bool used = books.held_blocks.load() != 0 || books.claiming.load() != 0;
    for (uint32_t b = 0; used && b < device->block_count; b++) {
      uint32_t word = device->owners()[b].load(std::memory_order_relaxed);
      if (word == 0 || owner_slot(word) != slot) continue;
      madvise(bytes_[i] + b * kBlockBytes, kBlockBytes, MADV_REMOVE);
      device->owners()[b].store(0, std::memory_order_release);
    }
    books.held_blocks.store(0);
    books.claiming.store(0);
    books.contexts.store(0);
    books.visible_at_ns.store(0);
    books.holds_visibly_at_ns.store(0);
    books.launches.store(0);
    engines_[i]->dismiss(slot);
  }
  node_->slots[slot].alive.store(0, std::memory_order_release);
}

int Server::say_hello(int fd, Client *client, Message *message) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (client->said_hello) return EALREADY;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return errno;
  for (uint32_t slot = 1; slot < kMaxProcesses; slot++) {
    ProcessSlot &process = node_->slots[slot];
    if (process.alive.load() != 0) continue;
    process.host_pid = peer.pid;
    process.uid = peer.uid;
    process.is_cuda = message->argument;
    process.connected_ns = now_ns();
    process.calls.store(0);
    process.returned.store(0);
    read_cgroup(peer.pid, process.cgroup);
    process.alive.store(1, std::memory_order_release);
    if (slot >= node_->slot_high_water.load()) node_->slot_high_water.store(slot + 1);
    client->slot = slot;
    client->said_hello = true;
    message->argument = slot;
    message->id = process.generation.fetch_add(1, std::memory_order_relaxed) + 1;
    for (auto &engine : engines_) engine->admit(slot, message->id);
    message->device = node_->device_count;
    return 0;
  }
  return EUSERS;
}

void Server::answer(int fd, Client *client, Message *message, std::vector<uint32_t> *blocks, std::vector<int> *fds) {
  std::vector<int> out;
  std::vector<uint32_t> out_blocks;
  int made = -1;
  bool known_device = message->device < devices_.size();
  int given = fds->empty() ? -1 : fds->front();
  int status = EINVAL;
  if (message->op == Op::kHello) {
    status = say_hello(fd, client, message);
    if (status == 0) out = descriptors_;
  } else if (!client->said_hello) {
    status = EPERM;
  } else {
    switch (message->op) {
      case Op::kExport:
        status = known_device ? export_blocks(*client, message, *blocks) : EINVAL;
        break;
      case Op::kExportFd:
        status = export_fd(message, &made);
        if (made >= 0) out.push_back(made);
        break;
      case Op::kImport:
      case Op::kImportFd:
        status = import(*client, message, &out_blocks, message->op == Op::kImportFd ? given : -1);
        break;
      case Op::kDrop:
        shares_->drop(message->id, client->slot);
        status = 0;
        break;
      case Op::kSetLimit:
        status = known_device ? set_limit(fd, *message) : EINVAL;
        break;
      case Op::kBreak:
        status = known_device ? set_broken(*message) : EINVAL;
        break;
      case Op::kStop:
        config_.idle_ms = 0;
        status = 0;
        break;
      default:
        break;
    }
  }
  message->status = status;
  message->block_count = static_cast<uint32_t>(out_blocks.size());
  bool sent = send_message(fd, *message, out_blocks.data(), out);
  if (made >= 0) close(made);
  if (!sent) client_gone(fd);
}

}  // namespace simgpu
