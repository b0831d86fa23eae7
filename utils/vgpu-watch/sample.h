// What is known of a node's jobs at one moment, from Slurm, NVML and root's own files. Nothing in here was believed because a
// job said it, but for `books` and what goes with them, which are only ever held against the job.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vgpu::watch {

enum class Counted : std::uint8_t { no, yes, unknown };

// A process of the job on one GPU, as NVML shows it.
struct Holder {
  int pid = 0;
  std::uint64_t bytes = 0;
  int sm_percent = -1;  // -1: not known
  Counted counted = Counted::unknown;
};

// The words of a device in the job's books that only grow.
struct Counters {
  std::uint64_t refused = 0;
  std::uint64_t exits = 0;
  std::uint64_t launches = 0;
  std::uint64_t throttled_ns = 0;

  bool went_back_since(const Counters &earlier) const {
    return refused < earlier.refused || exits < earlier.exits || launches < earlier.launches ||
           throttled_ns < earlier.throttled_ns;
  }
};

struct DeviceSeen {
  std::string uuid;
  std::uint64_t limit = 0;         // bytes
  std::uint64_t former_limit = 0;  // the highest that it ever had; 0: this one
  unsigned sm_percent = 100;
  std::vector<Holder> holders;
  // From the books, if they could be read.
  std::uint64_t counted = 0;  // bytes
  bool adds_up = true;
  std::uint64_t picture = 0;  // of all words of the accounting: the same number, the same words
  Counters counters;
};

struct JobSeen {
  std::uint32_t id = 0;
  uid_t uid = 0;
  std::uint64_t created = 0;
  std::string books_trouble;  // empty: they could be read
  std::vector<DeviceSeen> devices;
};

// Of a whole GPU, everybody on it included.
struct Memory {
  std::uint64_t in_use = 0;  // physically
  std::uint64_t listed = 0;  // summed over processes: what they share is in there more than once, on some drivers
};

struct Sample {
  bool nvml = false;  // it answered
  std::vector<JobSeen> jobs;
  std::map<std::string, Memory> memory;  // by UUID; where it is not known, none
};

}  // namespace vgpu::watch
