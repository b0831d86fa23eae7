// gpu_tables: programs that print what a driver does, for the report of ./check.sh --gpu. Each subcommand is a file, and ends
// with a line "-> ..." that says it in one sentence. They use the driver alone, opened at run time as other programs open it:
// the same program runs bare and in a job.
#pragma once

#include <cuda.h>
#include <nvml.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tables {

// Subcommands; each returns the status of the program: 0, or 1 if a promise of ours is broken or the driver failed.
int machine();
int books(char **command);
int steps();
int sizes();
int nvml_calls();
int nvml_moments();
int nvml_watch(double seconds);
int events();
int growth();
int share(const std::string &kernel, unsigned streams, double seconds);

// The driver's function of this very name; without one the program ends with a sentence.
void *driver_function(const char *name);
bool driver_has(const char *name);
#define CU(name)                                                                                 \
  ([] {                                                                                          \
    static auto *function = reinterpret_cast<decltype(&::name)>(tables::driver_function(#name)); \
    return function;                                                                             \
  }())

// Ends the program with a sentence unless the call succeeded.
void check(CUresult result, const char *what);
std::string name_of(CUresult result);

void *nvml_function(const char *name);  // null if NVML, or the function, is not there
template <typename... Arguments>
nvmlReturn_t nvml(const char *name, Arguments... arguments) {
  auto *function = reinterpret_cast<nvmlReturn_t (*)(Arguments...)>(nvml_function(name));
  return function != nullptr ? function(arguments...) : NVML_ERROR_FUNCTION_NOT_FOUND;
}
std::string name_of(nvmlReturn_t result);

// The first device of CUDA, and the same one of NVML (null without NVML).
CUdevice device();
nvmlDevice_t nvml_device();
// Makes the primary context of it current.
void make_context();
// What the device has free, as the driver says in this process.
std::uint64_t free_bytes();

// NVML's figure for a process; false if it is not listed. `bytes` is ~0 where NVML does not know.
struct ListedProcess {
  unsigned pid;
  std::uint64_t bytes;
};
bool listed_processes(std::vector<ListedProcess> *processes);
const ListedProcess *find_process(const std::vector<ListedProcess> &processes, unsigned pid);
bool device_used(std::uint64_t *bytes);

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
void sleep_ms(unsigned ms);

// Text in columns, written row by row, so that a report has the rows before a hang. The first column is flush left in `width`
// characters, the others flush right in what their titles take (8 at least), and what has no title flush left at the end.
class Table {
 public:
  Table(size_t width, const std::vector<std::string> &titles);
  void add(const std::vector<std::string> &row);

 private:
  std::vector<size_t> widths_;
};

std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));
std::string mib(std::uint64_t bytes);        // "1.5"
std::string mib_signed(std::int64_t bytes);  // "+1.5"
std::string size_name(std::uint64_t bytes);  // "2 MiB + 1"
void conclude(const std::string &sentence);  // the line "-> ..."

}  // namespace tables
