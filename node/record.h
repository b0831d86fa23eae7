// What is kept of a job when it has ended: one line of JSON for each job, written by its epilog.
//
//   {"version":1,"job":7,"uid":1000,"node":"n1","created":1700000000,"ended":1700003600,"launches_hooked":false,
//    "devices":[{"uuid":"GPU-...","memory_limit_bytes":8589934592,"sm_limit_percent":100,"memory_peak_bytes":...,
//                "refused":0,"launches":null,"throttled_seconds":null,
//                "memory_average_bytes":...,"sampled_seconds":3585,"sm_average_percent":null,
//                "first_memory_limit_bytes":8589934592,"highest_memory_limit_bytes":8589934592,"refused_since_change":0}]}
//
// The last two lines say what was not known to version 1 from the beginning: readers must do without them. The average is
// null where nobody sampled, that of the SMs where launches were not held to a share all the time.
// Read by `vgpuctl report`, and by whoever likes JSON.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "history.h"
#include "region/region.h"

namespace vgpu::node {

inline constexpr char kRecordFile[] = "/var/log/vgpu/jobs.jsonl";
inline constexpr std::uint64_t kMaxRecord = std::uint64_t{16} << 20;  // then it becomes FILE.1, and FILE.1 goes

std::string record_line(const region::Snapshot &region, const History &history, const std::string &node,
                        std::uint64_t now);

// Fault::not_found: the directory is not there, so nobody wants a record. One writer at a time, with a deadline.
Error append_record(const std::string &path, const std::string &line, std::uint64_t max_size = kMaxRecord);

}  // namespace vgpu::node
