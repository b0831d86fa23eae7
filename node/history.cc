#include "history.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/file_lock.h"
#include "base/scoped.h"
#include "directory.h"
#include "used_memory.h"

namespace vgpu::node {

namespace {

constexpr unsigned kLockDeadline_ms = 1'000;
constexpr char kMagic[8] = {'v', 'g', 'p', 'u', 'H', 'I', '1', '\n'};

struct Header {
  char magic[8];
  double sampled_at;
};

// The file, and the lock that those hold who have it open. Its directory is root's, so nobody else can put a file there.
class HistoryFile {
 public:
  Error open(const std::string &region, int flags) {
    const JobDirectory directory(region);
    path_ = directory.history_file();
    const std::string lock_path = directory.lock_file();
    lock_file_ = ScopedFd(::open(lock_path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (!lock_file_) return system_error("cannot open %s", lock_path.c_str());
    if (Error error = FileLock::acquire(lock_file_.get(), 0, kLockDeadline_ms, &lock_)) return error;
    file_ = ScopedFd(::open(path_.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0600));
    return {};
  }

  History read(unsigned ndev) const {
    History history(ndev);
    Header header;
    const std::size_t size = ndev * sizeof(DeviceHistory);
    if (!file_ || pread(file_.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
        std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 ||
        pread(file_.get(), history.devices.data(), size, sizeof header) != static_cast<ssize_t>(size)) {
      return History(ndev);
    }
    history.sampled_at = header.sampled_at;
    return history;
  }

  Error write(const History &history) const {
    Header header = {{}, history.sampled_at};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    std::string bytes(reinterpret_cast<const char *>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char *>(history.devices.data()),
                 history.devices.size() * sizeof(DeviceHistory));
    if (file_ && pwrite(file_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) return {};
    return system_error("cannot write %s", path_.c_str());
  }

 private:
  std::string path_;
  ScopedFd lock_file_;
  FileLock lock_;  // goes before the file it is on
  ScopedFd file_;
};

}  // namespace

Error read_history(const std::string &region, unsigned ndev, History *history) {
  HistoryFile file;
  if (Error error = file.open(region, O_RDONLY)) return error;
  *history = file.read(ndev);
  return {};
}

Error add_sample(const std::string &region, const region::Snapshot &seen, double now) {
  HistoryFile file;
  if (Error error = file.open(region, O_RDWR | O_CREAT)) return error;
  History history = file.read(seen.ndev());
  const double pause = now - history.sampled_at;
  const bool is_covered = pause > 0 && pause <= kLongestPause_s;
  for (unsigned dev = 0; dev < seen.ndev(); ++dev) {
    DeviceHistory &device = history.devices[dev];
    const std::uint64_t used = used_memory(seen, dev);
    if (is_covered) {
      device.sampled_s += pause;
      device.byte_seconds += pause * (static_cast<double>(device.last_used) + static_cast<double>(used)) / 2;
    }
    device.last_used = used;
  }
  history.sampled_at = now;
  return file.write(history);
}

Error note_change(const std::string &region, const region::Snapshot &before, const region::Snapshot &after) {
  HistoryFile file;
  if (Error error = file.open(region, O_RDWR | O_CREAT)) return error;
  History history = file.read(before.ndev());
  for (unsigned dev = 0; dev < before.ndev() && dev < after.ndev(); ++dev) {
    const region::DeviceSnapshot &old = before.device(dev);
    const region::DeviceSnapshot &now = after.device(dev);
    if (old.memory_limit == now.memory_limit && old.sm_percent == now.sm_percent) continue;
    DeviceHistory &device = history.devices[dev];
    if (device.first_limit == 0) device.first_limit = old.memory_limit;
    device.highest_limit = std::max({device.highest_limit, old.memory_limit, now.memory_limit});
    device.highest_sm = std::max<std::uint64_t>({device.highest_sm, old.sm_percent, now.sm_percent});
    if (old.memory_limit != now.memory_limit) device.refused_before = now.refused;
  }
  return file.write(history);
}

}  // namespace vgpu::node
