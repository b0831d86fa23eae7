#include "record.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "io.h"
#include "region/file_lock.h"
#include "region/scoped.h"

namespace vgpu {

namespace {

constexpr unsigned kLockDeadline_ms = 5'000;

// What is in there comes from NVML and from the host's name. Nothing in them needs to be escaped.
std::string quoted(const char *text, std::size_t most) {
  std::string result = "\"";
  for (std::size_t i = 0; i < most && text[i] != '\0'; ++i) {
    const char c = text[i];
    result += c > ' ' && c <= '~' && c != '"' && c != '\\' ? c : '?';
  }
  return result + '"';
}

std::string field(const char *name, std::uint64_t value) {
  return std::string("\"") + name + "\":" + std::to_string(value);
}

std::string device_text(const DeviceSnapshot &device, bool hooked) {
  char throttled[32];
  std::snprintf(throttled, sizeof throttled, "%.3f", static_cast<double>(device.throttled_ns) / 1e9);
  return "{\"uuid\":" + quoted(device.identity.uuid, sizeof device.identity.uuid) + ',' +
         field("memory_limit_bytes", device.memory_limit) + ',' + field("sm_limit_percent", device.sm_percent) + ',' +
         field("memory_peak_bytes", device.memory_peak) + ',' + field("refused", device.refused) +
         ",\"launches\":" + (hooked ? std::to_string(device.launches) : "null") +
         ",\"throttled_seconds\":" + (hooked ? throttled : "null") + '}';
}

// Under the lock.
Error rotate(const std::string &path, std::uint64_t max_size) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < max_size) return {};
  if (rename(path.c_str(), (path + ".1").c_str()) == 0) return {};
  return system_error("vgpu: cannot rotate %s", path.c_str());
}

}  // namespace

std::string record_line(const Snapshot &region, const std::string &node, std::uint64_t now) {
  const bool hooked = region.job().launch_hooks != 0;
  std::string text = "{\"version\":1," + field("job", region.job().job_id) + ',' + field("uid", region.job().uid) +
                     ",\"node\":" + quoted(node.c_str(), node.size()) + ',' + field("created", region.created()) + ',' +
                     field("ended", now) + ",\"launches_hooked\":" + (hooked ? "true" : "false") + ",\"devices\":[";
  for (unsigned dev = 0; dev < region.ndev(); ++dev) {
    if (dev > 0) text += ',';
    text += device_text(region.device(dev), hooked);
  }
  return text + "]}\n";
}

Error append_record(const std::string &path, const std::string &line, std::uint64_t max_size) {
  // A file of its own that only root can open: whoever may read the record could hold a lock on it for ever.
  const std::string lock_path = path + ".lock";
  const ScopedFd lock_file(open(lock_path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock_file) {
    const Fault fault = errno == ENOENT ? Fault::not_found : Fault::system;
    Error error = system_error("vgpu: cannot open %s", lock_path.c_str());
    error.fault = fault;
    return error;
  }
  FileLock lock;
  if (Error error = FileLock::acquire(lock_file.get(), 0, kLockDeadline_ms, &lock)) return error;
  if (Error error = rotate(path, max_size)) return error;
  const ScopedFd file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  // fchmod, because the umask is the caller's business.
  if (!file || fchmod(file.get(), 0644) != 0 || !write_all(file.get(), line)) {
    return system_error("vgpu: cannot write %s", path.c_str());
  }
  return {};
}

}  // namespace vgpu
