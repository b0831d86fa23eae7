// One way for the processes of a job to share a memory limit, and the list of all that are compared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bench {

// Two counts of the same memory, made in one reading: the total, and the sum of its parts. A reading whose two counts
// differ is torn. A scheme that knows that it failed says so instead.
struct Picture {
  std::uint64_t total = 0;
  std::uint64_t parts = 0;
  bool exact = true;
};

// Made by the parent, before the fork; then every child attaches.
class Scheme {
 public:
  virtual ~Scheme() = default;

  virtual void attach(unsigned slot) = 0;
  virtual bool reserve(std::uint64_t bytes) = 0;  // false: refused
  virtual void release(std::uint64_t bytes) = 0;
  virtual std::uint64_t used() = 0;  // what a program that asks for free memory is told
  virtual Picture picture() = 0;     // what a tool that shows every rank gets to see
};

struct SchemeSetting {
  std::uint64_t limit;
  std::string scratch;  // a directory for schemes that need files
};

struct SchemeEntry {
  const char *name;
  std::unique_ptr<Scheme> (*make)(const SchemeSetting &setting);
  bool waits_end;  // by a timeout of its own; what then exceeds our patience is only slow, else it never ends
  // As reported by the documents that this comparison retraces; null where they have none.
  const char *reported_alloc_us;
  const char *reported_query_us;
  const char *reported_strict;
};

inline constexpr unsigned kMaxRanks = 16;

const std::vector<SchemeEntry> &schemes();

// One file each.
std::unique_ptr<Scheme> make_semaphore(const SchemeSetting &setting);
std::unique_ptr<Scheme> make_per_process(const SchemeSetting &setting);
std::unique_ptr<Scheme> make_rwlock(const SchemeSetting &setting);
std::unique_ptr<Scheme> make_full_atomics(const SchemeSetting &setting);
std::unique_ptr<Scheme> make_seqlock(const SchemeSetting &setting);
std::unique_ptr<Scheme> make_robust_mutex(const SchemeSetting &setting);
std::unique_ptr<Scheme> make_region(const SchemeSetting &setting);

}  // namespace bench
