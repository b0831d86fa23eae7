// The server's part in faults: it watches the file of faults for the clients, and takes devices from them.
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>

#include "simgpu/kernel/server.h"

namespace simgpu {

void Server::watch_faults() {
  announce_faults();
  notices_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (notices_ < 0) return;  // then only what is there now
  inotify_add_watch(notices_, directory_.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = notices_;
  epoll_ctl(poll_, EPOLL_CTL_ADD, notices_, &event);
}

void Server::directory_changed() {
  alignas(inotify_event) char buffer[4096];
  bool about_faults = false;
  for (ssize_t bytes; (bytes = read(notices_, buffer, sizeof buffer)) > 0;)
    for (ssize_t at = 0; at < bytes;) {
      auto *event = reinterpret_cast<inotify_event *>(buffer + at);
      about_faults |= event->len != 0 && std::string(event->name) == "faults";
      at += static_cast<ssize_t>(sizeof *event + event->len);
    }
  if (about_faults) announce_faults();
}

// Release: a client that sees the new number finds the file, or the device, as it is now.
void Server::announce_faults() {
  bool some = lost_a_device_ || access((directory_ + "/faults").c_str(), F_OK) == 0;
  node_->faults.store(some ? ++faults_changed_ : 0, std::memory_order_release);
}

int Server::set_broken(const Message &message) {
  if (message.argument > kDeviceLost) return EINVAL;
  devices_[message.device]->broken.store(message.argument);
  if (message.argument == kDeviceLost) {
    lost_a_device_ = true;
    announce_faults();
  }
  return 0;
}

}  // namespace simgpu
