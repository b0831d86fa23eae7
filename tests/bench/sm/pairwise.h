// Combinations in which every pair of values of any two factors occurs, and some more.
#pragma once

#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace bench {

// `sizes`: how many values each factor has. Always the same rows.
inline std::vector<std::vector<unsigned>> pairwise(const std::vector<unsigned> &sizes, std::size_t rows) {
  std::set<std::tuple<unsigned, unsigned, unsigned, unsigned>> missing;
  for (unsigned a = 0; a < sizes.size(); ++a) {
    for (unsigned b = a + 1; b < sizes.size(); ++b) {
      for (unsigned i = 0; i < sizes[a]; ++i) {
        for (unsigned j = 0; j < sizes[b]; ++j) missing.insert({a, b, i, j});
      }
    }
  }
  std::mt19937_64 random(1);
  std::vector<std::vector<unsigned>> result;
  while (result.size() < rows) {
    // Of a hundred at random the one that covers most of what is missing.
    std::vector<unsigned> best;
    std::size_t best_covers = 0;
    for (unsigned tries = 0; tries < 100 || best.empty(); ++tries) {
      std::vector<unsigned> row;
      for (const unsigned size : sizes) row.push_back(static_cast<unsigned>(random() % size));
      std::size_t covers = 1;
      for (unsigned a = 0; a < sizes.size(); ++a) {
        for (unsigned b = a + 1; b < sizes.size(); ++b) covers += missing.count({a, b, row[a], row[b]});
      }
      if (covers > best_covers) best = row, best_covers = covers;
    }
    for (unsigned a = 0; a < sizes.size(); ++a) {
      for (unsigned b = a + 1; b < sizes.size(); ++b) missing.erase({a, b, best[a], best[b]});
    }
    result.push_back(best);
  }
  return result;
}

}  // namespace bench
