// Seven ways to share a memory limit between processes, side by side in one run: what they cost, whether they keep the
// limit, and what happens to the others when one process is stopped or killed.
//
//   compare_bench [FILE]    prints a table; writes all columns as tab-separated values to FILE, by default compare.tsv
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../failure.h"
#include "../scratch.h"
#include "../statistics.h"
#include "measure.h"

namespace bench {
namespace {

constexpr unsigned kRounds = 5;

struct Cell {
  std::string column;
  std::string value;
};
using Row = std::vector<Cell>;

template <class... Arguments>
__attribute__((format(printf, 1, 0))) std::string text(const char *format, Arguments... arguments) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, arguments...);
  return buffer;
}

std::string count(std::uint64_t value) { return std::to_string(value); }

std::string milliseconds(double value, const SchemeEntry &entry) {
  if (value <= kPatienceMs) return text("%.3g", value);
  return entry.waits_end ? text(">%.0f", kPatienceMs) : "never";
}

std::string reported(const char *value) { return value != nullptr ? value : "-"; }

Row make_row(const Candidate &candidate, const std::vector<Speed> &rounds) {
  const auto middle = [&](double Speed::*field) {
    std::vector<double> values;
    for (const Speed &speed : rounds) values.push_back(speed.*field);
    return text("%.3g", median(values));
  };
  const SchemeEntry &entry = candidate.entry;
  const Strictness strict = measure_strictness(candidate);
  return {{"scheme", entry.name},
          {"pair_ns", middle(&Speed::pair_ns)},
          {"pair_8p_ns", middle(&Speed::pair_crowd_ns)},
          {"p999_8p_us", middle(&Speed::p999_crowd_us)},
          {"query_ns", middle(&Speed::query_ns)},
          {"picture_ns", middle(&Speed::picture_ns)},
          {"over_bytes", count(strict.over_bytes)},
          {"over_grants", count(strict.over_grants)},
          {"grants", count(strict.grants)},
          {"torn", count(strict.torn)},
          {"approximate", count(strict.approximate)},
          {"pictures", count(strict.pictures)},
          {"stall_ms", milliseconds(measure_stall_ms(candidate), entry)},
          {"recover_ms", milliseconds(measure_recovery_ms(candidate), entry)},
          {"reported_alloc_us", reported(entry.reported_alloc_us)},
          {"reported_query_us", reported(entry.reported_query_us)},
          {"reported_strict", reported(entry.reported_strict)}};
}

// Every line, the header first, as a list of texts.
std::vector<std::vector<std::string>> lines_of(const std::vector<Row> &rows) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Cell &cell : rows.front()) lines[0].push_back(cell.column);
  for (const Row &row : rows) {
    lines.emplace_back();
    for (const Cell &cell : row) lines.back().push_back(cell.value);
  }
  return lines;
}

void print_aligned(const std::vector<Row> &rows) {
  const auto lines = lines_of(rows);
  std::vector<int> widths(rows.front().size());
  for (const auto &line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], static_cast<int>(line[i].size()));
  }
  for (const auto &line : lines) {
    std::printf("%-*s", widths[0], line[0].c_str());
    for (std::size_t i = 1; i < line.size(); ++i) std::printf("  %*s", widths[i], line[i].c_str());
    std::printf("\n");
  }
}

void write_tsv(const char *path, const std::vector<Row> &rows) {
  std::FILE *file = std::fopen(path, "w");
  if (file == nullptr) throw Failure("%s: %s", path, std::strerror(errno));
  for (const auto &line : lines_of(rows)) {
    for (std::size_t i = 0; i < line.size(); ++i) std::fprintf(file, "%s%s", i != 0 ? "\t" : "", line[i].c_str());
    std::fprintf(file, "\n");
  }
  if (std::fclose(file) != 0) throw Failure("%s: %s", path, std::strerror(errno));
}

void compare(const char *tsv) {
  const ScratchDirectory scratch;
  std::vector<std::vector<Speed>> speeds(schemes().size());
  // Round by round, so that a noisy moment of the machine does not fall on one scheme alone.
  for (unsigned round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < schemes().size(); ++i) {
      speeds[i].push_back(measure_speed({schemes()[i], scratch.path()}));
    }
  }
  std::vector<Row> rows;
  for (std::size_t i = 0; i < schemes().size(); ++i) {
    rows.push_back(make_row({schemes()[i], scratch.path()}, speeds[i]));
  }
  print_aligned(rows);
  write_tsv(tsv, rows);
}

}  // namespace
}  // namespace bench

int main(int argc, char **argv) {
  return bench::run(argv[0], [&] { bench::compare(argc > 1 ? argv[1] : "compare.tsv"); });
}
