// The process that stands for the node's kernel driver: it owns the shared memory, gives each client a slot, learns its
// host PID from the socket's credentials, and takes back what a client held when its socket closes, however it ended.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "simgpu/kernel/shares.h"
#include "simgpu/node/config.h"
#include "simgpu/node/engine.h"
#include "simgpu/node/protocol.h"

namespace simgpu {

class Server {
 public:
  // Makes this process, or the child it forks, the only kernel process of the node as long as it lives. Returns 0, or
  // EWOULDBLOCK when another process is, or an errno.
  int claim(const std::string &directory);
  // Makes all shared memory and the listening socket. Returns false after saying why on stderr.
  bool start(const NodeConfig &config);
  // Serves until nobody has been connected for the idle time.
  void run();

 private:
  struct Client {
    uint32_t slot = 0;
    uint64_t share = 0;  // not a client at all but our end of a descriptor that names this object
    bool said_hello = false;
  };

  bool make_clock();
  bool make_device(uint32_t index, const DeviceFacts &facts, bool broken);
  void accept_client();
  void client_ready(int fd);
  void client_gone(int fd);
  void reclaim(uint32_t slot);
  void answer(int fd, Client *client, Message *message, std::vector<uint32_t> *blocks, std::vector<int> *fds);
  int say_hello(int fd, Client *client, Message *message);
  int export_blocks(const Client &client, Message *message, const std::vector<uint32_t> &blocks);
  int export_fd(Message *message, int *fd);
  int import(const Client &client, Message *message, std::vector<uint32_t> *blocks, int fd);
  int set_limit(int fd, const Message &message);
  int set_broken(const Message &message);
  void watch_faults();
  void directory_changed();
  void announce_faults();
  bool try_to_end();
  bool claim_holds() const;

  std::string directory_;
  NodeConfig config_;
  int claim_ = -1;  // the locked kernel.lock
  int listen_ = -1;
  int poll_ = -1;
  int notices_ = -1;             // inotify's, about the node's directory
  uint32_t faults_changed_ = 0;  // how often
  bool lost_a_device_ = false;
  NodeState *node_ = nullptr;
  std::vector<DeviceState *> devices_;
  std::vector<std::unique_ptr<Engine>> engines_;
  ClockPage *clock_ = nullptr;
  std::vector<char *> bytes_;
  std::vector<int> descriptors_;  // node state, clock, then state and memory of each device: what hello hands out
  std::unique_ptr<Shares> shares_;
  std::unordered_map<int, Client> clients_;
  std::unordered_map<uint64_t, int> end_by_inode_;  // inode of a descriptor's outer end -> our end of it
};

}  // namespace simgpu
