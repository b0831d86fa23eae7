// Decides, sample by sample, which jobs have done wrong. Pure: it looks at nothing but samples, and does nothing.
//
// A job that holds to its limit is never found guilty: whatever may be otherwise is counted in its favour, and nothing is found
// that was not seen in several samples in a row.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sample.h"

namespace vgpu::watch {

inline constexpr unsigned kSamples = 3;         // in a row, of too much memory
inline constexpr unsigned kSlowSamples = 10;    // in a row, of books with too little in them
inline constexpr unsigned kTimeSamples = 20;    // over which GPU time is averaged
inline constexpr unsigned kTimeTolerance = 15;  // percentage points

// How much more than its limit a job may be seen with: what NVML rounds, and shows early or late.
inline std::uint64_t tolerance_of(std::uint64_t limit) { return (std::uint64_t{64} << 20) + limit / 32; }

enum class Wrong : std::uint8_t {
  memory,     // it holds more than its limit
  time,       // it uses more GPU time than its share
  uncounted,  // a process holds memory and is not in the books
  books,      // unreadable, inconsistent, rewound, or with less in them than is held
};

struct Finding {
  std::uint32_t job_id = 0;
  Wrong wrong = Wrong::memory;
  std::string uuid;      // of the GPU; empty: all of them
  std::string sentence;  // without who, and without what is done about it: "holds 3GiB of ..."
  std::vector<Holder> guilty;
  bool is_new = true;  // false: it was found before, and goes on
};

class Judge {
 public:
  std::vector<Finding> judge(const Sample &sample);

 private:
  struct Device {
    std::uint64_t last_limit = 0;
    std::uint64_t allowance = 0;  // the limit, or what is left from before it was lowered
    std::array<std::uint64_t, kSlowSamples> sums =
        {};  // the last ones, in a ring: NVML may leave out a process now and then
    unsigned known_sums = 0;
    unsigned over = 0;  // samples in a row
    unsigned too_little = 0;
    unsigned does_not_add_up = 0;
    std::uint64_t last_picture = 0;
    Counters last_counters;
    std::array<unsigned, kTimeSamples> shares = {};  // the last ones, in a ring
    unsigned known_shares = 0;
    std::map<int, unsigned> uncounted;  // by process
  };
  struct Job {
    std::uint64_t created = 0;
    unsigned unreadable = 0;
    std::map<std::string, Device> devices;
    std::set<std::string> found;
  };

  // A user's processes on one GPU, in all of their jobs: only these can share memory with each other.
  struct UserOnDevice {
    std::uint64_t held = 0;
    std::uint64_t largest = 0;  // process
    std::uint64_t allowed = 0;
  };

  void remember(const Sample &sample);
  UserOnDevice user_on(const Sample &sample, uid_t uid, const std::string &uuid) const;
  void judge_books(const JobSeen &seen, Job *job, std::vector<Finding> *findings);
  void judge_device(const Sample &sample, const JobSeen &seen, const DeviceSeen &device, Job *job,
                    std::vector<Finding> *findings);

  std::map<std::uint32_t, Job> jobs_;
};

}  // namespace vgpu::watch
