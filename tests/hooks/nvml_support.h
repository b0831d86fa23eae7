// A simulated node for each test program, regions on it, and processes that belong to a job or to none.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "region/support.h"

namespace vgpu::test {

// The node's devices. Processes show at once on the first, after a while on the second, and never on the third.
inline constexpr unsigned kFast = 0;
inline constexpr unsigned kSlow = 1;
inline constexpr unsigned kNever = 2;
inline constexpr unsigned kSlowMs = 80;
inline constexpr std::uint64_t kContextBytes = 4 * kMiB;
inline constexpr std::uint64_t kNodeMemory = 4096 * kMiB;

// A job's region over all devices.
class Job {
 public:
  explicit Job(std::uint64_t memory_limit = kNodeMemory / 2);

  const std::string &directory() const { return directory_; }
  std::uint64_t used(unsigned dev) const;
  // What the rank that calls itself `pid` knows of its number on the node; 0: nothing.
  std::uint64_t noted_host_pid(pid_t pid) const;
  std::vector<std::uint64_t> noted_host_pids() const;

 private:
  TemporaryDirectory parent_;
  std::string directory_;
};

enum class Where { here, pid_namespace };

class Client {
 public:
  explicit Client(const Job *job, Where where = Where::here, const std::map<std::string, std::string> &settings = {});
  ~Client();
  Client(const Client &) = delete;
  Client &operator=(const Client &) = delete;

  void tell(const std::string &line);
  std::string answer();
  std::string ask(const std::string &line) { return tell(line), answer(); }
  void kill_now();
  pid_t host_pid() const;  // as this test's own namespace calls it

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

std::string ctl(const std::string &arguments);
// The node's own books.
std::uint64_t held_bytes(unsigned dev, pid_t pid);
// Until a process is in NVML's list, as somebody outside all jobs sees it.
void wait_until_visible(unsigned dev, const std::vector<const Client *> &clients);

// "PID=BYTES PID=BYTES ...", in the order of the numbers, of what the books say of these.
std::string as_listed(unsigned dev, const std::vector<const Client *> &clients);
// An answer with the entries behind its first `fields` fields put in order.
std::string in_order(const std::string &answer, unsigned fields);
std::string program_directory();
std::string libvgpu();

}  // namespace vgpu::test
