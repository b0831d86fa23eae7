#include "simgpu/node/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace simgpu {
namespace {
constexpr size_t kMaxFds = 2 + 2 * kMaxDevices;
}

SocketAddress::SocketAddress(const std::string &directory, const char *name)
    : directory_(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  address_.sun_family = AF_UNIX;
  snprintf(address_.sun_path, sizeof address_.sun_path, "/proc/self/fd/%d/%s", directory_, name);
}

SocketAddress::~SocketAddress() {
  if (directory_ >= 0) close(directory_);
}

bool send_message(int socket, const Message &header, const uint32_t *blocks, const std::vector<int> &fds) {
  Message copy = header;
  iovec parts[2] = {{&copy, sizeof copy}, {const_cast<uint32_t *>(blocks), copy.block_count * sizeof(uint32_t)}};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = copy.block_count != 0 ? 2 : 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t sent;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool receive_message(int socket, Message *header, std::vector<uint32_t> *blocks, std::vector<int> *fds) {
  // MSG_TRUNC with MSG_PEEK tells the packet's length, so that the buffer never has to be the largest possible one.
  ssize_t length;
  do length = recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC);
  while (length < 0 && errno == EINTR);
  if (length < static_cast<ssize_t>(sizeof(Message)) || length > static_cast<ssize_t>(kMaxMessageBytes)) return false;
  std::vector<uint32_t> local;
  std::vector<uint32_t> &out = blocks != nullptr ? *blocks : local;
  out.resize((static_cast<size_t>(length) - sizeof(Message)) / sizeof(uint32_t));
  iovec parts[2] = {{header, sizeof *header}, {out.data(), out.size() * sizeof(uint32_t)}};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  do length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (length < 0 && errno == EINTR);
  if (length < static_cast<ssize_t>(sizeof(Message))) return false;
  for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      if (fds != nullptr)
        fds->push_back(fd);
      else
        close(fd);
    }
  }
  return out.size() == header->block_count;
}

}  // namespace simgpu
