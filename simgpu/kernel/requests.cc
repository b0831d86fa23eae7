// The server's less frequent requests: shared objects and memory limits.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "simgpu/kernel/server.h"

namespace simgpu {

int Server::export_blocks(const Client &client, Message *message, const std::vector<uint32_t> &blocks) {
  DeviceState *device = devices_[message->device];
  for (uint32_t block : blocks) {
    if (block >= device->block_count) return EINVAL;
    uint32_t word = device->owners()[block].load(std::memory_order_acquire);
    if (word == 0 || owner_slot(word) != client.slot) return EPERM;
  }
  Shares::Share share;
  share.device = message->device;
  share.bytes = message->bytes;
  share.extra = message->extra;
  share.blocks = blocks;
  message->id = shares_->add(client.slot, std::move(share));
  return 0;
}

// The descriptor is one end of a socket pair: when every copy of it is closed, our end says so, and until then it keeps
// the object, in whatever process or message it travels.
int Server::export_fd(Message *message, int *fd) {
  Shares::Share *share = shares_->find(message->id);
  if (share == nullptr) return ENOENT;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return errno;
  struct stat info {};
  fstat(pair[1], &info);
  Client ours;
  ours.share = message->id;
  clients_.emplace(pair[0], ours);
  share->descriptors++;
  end_by_inode_[info.st_ino] = pair[0];
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = pair[0];
  epoll_ctl(poll_, EPOLL_CTL_ADD, pair[0], &event);
  *fd = pair[1];
  return 0;
}

int Server::import(const Client &client, Message *message, std::vector<uint32_t> *blocks, int fd) {
  if (fd >= 0) {
    struct stat info {};
    if (fstat(fd, &info) != 0) return errno;
    auto it = end_by_inode_.find(info.st_ino);
    if (it == end_by_inode_.end()) return EBADF;
    message->id = clients_[it->second].share;
  } else if (message->op == Op::kImportFd) {
    return EBADF;
  }
  Shares::Share *share = shares_->find(message->id);
  if (share == nullptr) return ENOENT;
  share->holders.insert(client.slot);
  shares_->settle(message->id);  // if only descriptors kept it until now, it becomes this client's
  message->device = share->device;
  message->bytes = share->bytes;
  message->extra = share->extra;
  *blocks = share->blocks;
  return 0;
}

int Server::set_limit(int fd, const Message &message) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != 0) return EPERM;
  if (strnlen(message.text, sizeof message.text) == sizeof message.text || message.text[0] != '/') return EINVAL;
  MemoryLimit *row = nullptr;
  for (MemoryLimit &limit : node_->limits)
    if (limit.in_use != 0 && limit.device == message.device && strcmp(limit.cgroup, message.text) == 0) row = &limit;
  for (MemoryLimit &limit : node_->limits)
    if (row == nullptr && limit.in_use == 0) row = &limit;
  if (row == nullptr) return ENOSPC;
  const bool is_limit = message.bytes != 0 || message.extra != UINT64_MAX;
  node_->limit_sequence.fetch_add(1);
  row->device = message.device;
  row->soft_bytes = message.bytes;
  row->hard_bytes = message.extra;
  snprintf(row->cgroup, sizeof row->cgroup, "%s", message.text);
  row->in_use = is_limit;
  node_->limit_sequence.fetch_add(1);
  return 0;
}

}  // namespace simgpu
