#include "record.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/file_lock.h"
#include "base/scoped.h"
#include "sm_time.h"
#include "small_files.h"

namespace vgpu::node {

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

std::string decimal(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// What the region itself cannot tell.
std::string past_text(const region::DeviceSnapshot &device, const DeviceHistory &past,
                      const std::optional<SmReading> &sm, double elapsed_s) {
  const bool changed = past.first_limit != 0;
  const bool held_all_along = sm && (!changed || past.highest_sm < 100);
  const std::uint64_t earlier = std::min(past.refused_before, device.refused);
  return ",\"memory_average_bytes\":" + (past.sampled_s > 0 ? decimal(past.byte_seconds / past.sampled_s, 0) : "null") +
         ",\"sampled_seconds\":" + decimal(past.sampled_s, 0) +
         ",\"sm_average_percent\":" + (held_all_along ? decimal(100 * sm_share(*sm, elapsed_s), 1) : "null") + ',' +
         field("first_memory_limit_bytes", changed ? past.first_limit : device.memory_limit) + ',' +
         field("highest_memory_limit_bytes", std::max(past.highest_limit, device.memory_limit)) + ',' +
         field("refused_since_change", device.refused - earlier);
}

std::string device_text(const region::DeviceSnapshot &device, bool hooked) {
  return "\"uuid\":" + quoted(device.identity.uuid, sizeof device.identity.uuid) + ',' +
         field("memory_limit_bytes", device.memory_limit) + ',' + field("sm_limit_percent", device.sm_percent) + ',' +
         field("memory_peak_bytes", device.memory_peak) + ',' + field("refused", device.refused) +
         ",\"launches\":" + (hooked ? std::to_string(device.launches) : "null") +
         ",\"throttled_seconds\":" + (hooked ? decimal(static_cast<double>(device.throttled_ns) / 1e9, 3) : "null");
}

// Under the lock.
Error rotate(const std::string &path, std::uint64_t max_size) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < max_size) return {};
  if (rename(path.c_str(), (path + ".1").c_str()) == 0) return {};
  return system_error("cannot rotate %s", path.c_str());
}

}  // namespace

std::string record_line(const region::Snapshot &region, const History &history, const std::string &node,
                        std::uint64_t now) {
  // Whole seconds: a job that ended in the one it began in had some time.
  const double elapsed_s = static_cast<double>(std::max(now, region.created() + 1) - region.created());
  const bool hooked = region.job().launch_hooks != 0;
  std::string text = "{\"version\":1," + field("job", region.job().job_id) + ',' + field("uid", region.job().uid) +
                     ",\"node\":" + quoted(node.c_str(), node.size()) + ',' + field("created", region.created()) + ',' +
                     field("ended", now) + ",\"launches_hooked\":" + (hooked ? "true" : "false") + ",\"devices\":[";
  for (unsigned dev = 0; dev < region.ndev(); ++dev) {
    if (dev > 0) text += ',';
    text += '{' + device_text(region.device(dev), hooked) +
            past_text(region.device(dev), history.devices[dev], read_sm(region, dev), elapsed_s) + '}';
  }
  return text + "]}\n";
}

Error append_record(const std::string &path, const std::string &line, std::uint64_t max_size) {
  // A file of its own that only root can open: whoever may read the record could hold a lock on it for ever.
  const std::string lock_path = path + ".lock";
  const ScopedFd lock_file(open(lock_path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock_file) {
    const Fault fault = errno == ENOENT ? Fault::not_found : Fault::system;
    Error error = system_error("cannot open %s", lock_path.c_str());
    error.fault = fault;
    return error;
  }
  FileLock lock;
  if (Error error = FileLock::acquire(lock_file.get(), 0, kLockDeadline_ms, &lock)) return error;
  if (Error error = rotate(path, max_size)) return error;
  const ScopedFd file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  // fchmod, because the umask is the caller's business.
  if (!file || fchmod(file.get(), 0644) != 0 || !write_all(file.get(), line)) {
    return system_error("cannot write %s", path.c_str());
  }
  return {};
}

}  // namespace vgpu::node
