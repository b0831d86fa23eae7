#include "scheme.h"

namespace bench {

const std::vector<SchemeEntry> &schemes() {
  static const std::vector<SchemeEntry> list = {
      {"semaphore with timeouts", make_semaphore, true, "10", "10", "yes"},
      {"atomics per process, summed", make_per_process, false, "1", "1", "no"},
      {"read-write lock", make_rwlock, false, "5", "2", "yes"},
      {"full atomics", make_full_atomics, false, "0.1", "0.05", "no"},
      {"atomics + seqlock", make_seqlock, false, "0.2", "0.1", "yes"},
      {"robust mutex", make_robust_mutex, false, nullptr, nullptr, nullptr},
      {"slurm-vgpu", make_region, true, nullptr, nullptr, nullptr},
  };
  return list;
}

}  // namespace bench
