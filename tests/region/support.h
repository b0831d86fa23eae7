// What the region tests share: a directory for regions, and ranks in processes of their own that obey commands.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "region/region.h"
#include "tests/temporary_directory.h"

namespace vgpu::test {

using namespace region;

// Reserves, and counts a refusal, as the hooks do once they have nothing else to try.
inline Grant reserve(Rank &rank, unsigned dev, Kind kind, std::uint64_t bytes) {
  const Grant grant = rank.try_to_reserve(dev, kind, bytes);
  if (grant == Grant::refused) rank.note_refusal(dev);
  return grant;
}

inline constexpr std::uint64_t kMiB = 1 << 20;

inline double now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// How long something took. On a loaded machine wall time says little: what must be quick must need little CPU time and
// must not wait.
class Stopwatch {
 public:
  double cpu_ms() const { return thread_ms() - cpu_start_; }
  double wall_ms() const { return now_ms() - wall_start_; }

 private:
  static double thread_ms() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  }

  double cpu_start_ = thread_ms();
  double wall_start_ = now_ms();
};

#define EXPECT_QUICK(stopwatch)        \
  EXPECT_LT((stopwatch).cpu_ms(), 10); \
  EXPECT_LT((stopwatch).wall_ms(), 1000)

inline void sleep_ms(long ms) {
  const timespec pause = {ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&pause, nullptr);
}

// For what an emulator cannot do. qemu-user accepts MADV_WIPEONFORK and MADV_DONTFORK and ignores them, and the kernel
// under it cannot exec the test program again.
inline bool is_emulated() {
  const char *emulator = std::getenv("VGPU_TEST_EMULATED");
  return emulator != nullptr && *emulator != '\0';
}

#define SKIP_IF_EMULATED(why) \
  if (::vgpu::test::is_emulated()) GTEST_SKIP() << why

// The inode that the kernel gives the first PID namespace of a machine. In another one, as a container has, libvgpu must first find
// its own PID among those that NVML shows.
inline bool in_initial_pid_namespace() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 && status.st_ino == 0xEFFFFFFC;
}

#define SKIP_IN_PID_NAMESPACE(why) \
  if (!::vgpu::test::in_initial_pid_namespace()) GTEST_SKIP() << "in a PID namespace " << why

// How long a stress test runs.
inline double stress_seconds() {
  const char *text = std::getenv("VGPU_STRESS_SECONDS");
  return text != nullptr ? std::atof(text) : 5;
}

inline RegionSpec make_spec(const std::vector<DeviceSpec> &devices) {
  RegionSpec spec;
  spec.job_id = 7;
  spec.uid = geteuid();
  spec.ndev = static_cast<unsigned>(devices.size());
  spec.devices = devices.data();
  return spec;
}

inline std::vector<DeviceSpec> make_devices(unsigned ndev, std::uint64_t limit) {
  std::vector<DeviceSpec> devices(ndev);
  for (unsigned dev = 0; dev < ndev; ++dev) {
    std::snprintf(devices[dev].identity.uuid, sizeof devices[dev].identity.uuid, "GPU-%08u", dev);
    devices[dev].memory_limit = limit;
  }
  return devices;
}

// Memory that survives fork and is seen by parent and children alike.
template <typename T>
class Shared {
 public:
  Shared()
      : value_(static_cast<T *>(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared &) = delete;
  Shared &operator=(const Shared &) = delete;

  T *operator->() const { return value_; }
  T &operator*() const { return *value_; }

 private:
  T *value_;
};

// Runs `body` in a child that leads a process group of its own, dies with its parent and never returns into the test.
inline pid_t spawn(const std::function<int()> &body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent && getppid() != 0) _exit(99);  // 0: the parent is outside our PID namespace
  _exit(body());
}

inline int wait_for(pid_t child, int options = 0) {
  int status = 0;
  while (waitpid(child, &status, options) < 0 && errno == EINTR) continue;
  return status;
}

inline bool exited_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

class RegionTest : public ::testing::Test {
 protected:
  void create(unsigned ndev, std::uint64_t limit) {
    const std::vector<DeviceSpec> devices = make_devices(ndev, limit);
    const Error error = Region::create(directory_.path().c_str(), "7", make_spec(devices));
    ASSERT_FALSE(error) << error.text;
    attach(&region_);
  }
  void attach(Region *region) {
    const Error error = Region::attach(path().c_str(), Trust::root_or_self, region);
    ASSERT_FALSE(error) << error.text;
  }
  std::string path() const { return directory_.path() + "/7"; }

  void expect_consistent() {
    Snapshot snapshot;
    const Error error = Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot);
    ASSERT_FALSE(error) << error.text;
    for (unsigned dev = 0; dev < snapshot.ndev(); ++dev) {
      EXPECT_TRUE(snapshot.device(dev).ranks_add_up) << "device " << dev;
    }
  }
  std::uint64_t used(unsigned dev = 0) const { return region_.memory_used(dev); }

  TemporaryDirectory directory_;
  Region region_;
};

// A rank in a process of its own. Commands go over a socket; killing it needs no cooperation.
class RankProcess {
 public:
  explicit RankProcess(const std::string &region_path) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) std::abort();
    socket_ = sockets[0];
    pid_ = spawn([&] {
      close(sockets[0]);
      return serve(region_path.c_str(), sockets[1]);
    });
    close(sockets[1]);
    Reply ready;
    attached_ = recv(socket_, &ready, sizeof ready, 0) == sizeof ready && ready.ok;
    slot_ = ready.slot;
  }
  ~RankProcess() {
    if (pid_ > 0) end(SIGKILL);
    close(socket_);
  }
  RankProcess(const RankProcess &) = delete;
  RankProcess &operator=(const RankProcess &) = delete;

  bool attached() const { return attached_; }
  pid_t pid() const { return pid_; }
  unsigned slot() const { return slot_; }

  bool reserve(std::uint64_t bytes, unsigned dev = 0, Kind kind = Kind::data) {
    return ask({Request::reserve, dev, kind, bytes}).ok;
  }
  void release(std::uint64_t bytes, unsigned dev = 0, Kind kind = Kind::data) {
    ask({Request::release, dev, kind, bytes});
  }
  std::uint64_t memory_used(unsigned dev = 0) { return ask({Request::query, dev, Kind::data, 0}).bytes; }
  // Leaves in good order, as an atexit handler would, and exits.
  int exit() {
    ask({Request::leave, 0, Kind::data, 0});
    const int status = wait_for(pid_);
    pid_ = 0;
    return status;
  }
  void signal(int number) const { kill(pid_, number); }
  void end(int number) {
    kill(pid_, number);
    wait_for(pid_);
    pid_ = 0;
  }

 private:
  struct Request {
    enum Verb { reserve, release, query, leave } verb;
    unsigned dev;
    Kind kind;
    std::uint64_t bytes;
  };
  struct Reply {
    bool ok = false;
    unsigned slot = 0;
    std::uint64_t bytes = 0;
  };

  Reply ask(const Request &request) {
    Reply reply;
    if (send(socket_, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) return {};
    if (recv(socket_, &reply, sizeof reply, 0) != sizeof reply) return {};
    return reply;
  }

  static int serve(const char *path, int socket) {
    Region region;
    Rank rank;
    Reply reply;
    reply.ok = !Region::attach(path, Trust::root_or_self, &region) && !Rank::attach(region, &rank);
    reply.slot = rank.slot();
    send(socket, &reply, sizeof reply, 0);
    if (!reply.ok) return 1;
    Request request;
    while (recv(socket, &request, sizeof request, 0) == sizeof request) {
      switch (request.verb) {
        case Request::reserve:
          reply.ok = test::reserve(rank, request.dev, request.kind, request.bytes) == Grant::granted;
          break;
        case Request::release:
          rank.release(request.dev, request.kind, request.bytes);
          break;
        case Request::query:
          reply.bytes = rank.memory_used(request.dev);
          break;
        case Request::leave:
          rank.leave();
          send(socket, &reply, sizeof reply, 0);
          _exit(0);
      }
      send(socket, &reply, sizeof reply, 0);
    }
    return 0;
  }

  int socket_ = -1;
  pid_t pid_ = 0;
  bool attached_ = false;
  unsigned slot_ = 0;
};

}  // namespace vgpu::test
