// Reading from a pipe until a deadline.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace vgpu::node {

class Deadline {
 public:
  explicit Deadline(unsigned ms_from_now) : at_ms_(now_ms() + ms_from_now) {}

  // 0 when it has passed.
  int left_ms() const {
    const std::int64_t left = at_ms_ - now_ms();
    return left > 0 ? static_cast<int>(left) : 0;
  }

 private:
  static std::int64_t now_ms() { return static_cast<std::int64_t>(monotonic_ns() / 1'000'000); }

  std::int64_t at_ms_;
};

enum class ReadEnd : std::uint8_t {
  complete,  // the other side closed
  late,
  too_long,
  more,  // there may be more to come
};

// One piece of it, added to `text`.
inline ReadEnd read_some(int fd, const Deadline &deadline, std::string *text) {
  constexpr std::size_t kMaxLength = 1 << 20;
  char buffer[4096];
  for (;;) {
    pollfd waiting = {fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return ReadEnd::late;
    const ssize_t length = read(fd, buffer, sizeof buffer);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return ReadEnd::complete;
    text->append(buffer, static_cast<std::size_t>(length));
    return text->size() > kMaxLength ? ReadEnd::too_long : ReadEnd::more;
  }
}

// What was read before the end is in `text`, whichever end it was.
inline ReadEnd read_until(int fd, const Deadline &deadline, std::string *text) {
  ReadEnd end;
  do {
    end = read_some(fd, deadline, text);
  } while (end == ReadEnd::more);
  return end;
}

}  // namespace vgpu::node
