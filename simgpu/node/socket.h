// Messages with descriptors over a SOCK_SEQPACKET socket, and addresses for sockets below arbitrarily long paths.
#pragma once

#include <sys/un.h>

#include <string>
#include <vector>

#include "simgpu/node/protocol.h"

namespace simgpu {

// An address for `name` below `directory` that fits sun_path whatever the directory's length. Keeps a descriptor open.
class SocketAddress {
 public:
  SocketAddress(const std::string &directory, const char *name);
  ~SocketAddress();
  SocketAddress(const SocketAddress &) = delete;
  SocketAddress &operator=(const SocketAddress &) = delete;
  bool valid() const { return directory_ >= 0; }
  const sockaddr_un &address() const { return address_; }

 private:
  int directory_;
  sockaddr_un address_{};
};

// Both return false when the peer is gone. receive_message leaves the caller owning what it puts in `fds`.
bool send_message(int socket, const Message &header, const uint32_t *blocks, const std::vector<int> &fds);
bool receive_message(int socket, Message *header, std::vector<uint32_t> *blocks, std::vector<int> *fds);

}  // namespace simgpu
