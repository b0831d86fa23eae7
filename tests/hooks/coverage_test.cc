// Whatever the library's table says touches memory has a row in cases.cc or *_calls.cc: a new hook without a test fails
// here.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "calls.h"

namespace vgpu::test {
namespace {

std::set<std::string> accounted_symbols() {
  struct Row {
    const char *symbol, *rule;
  };
  constexpr Row kRows[] = {
#define CUDA_HOOK(symbol, name, since, stream, family, rule) {#symbol, #rule},
#define NVML_HOOK(symbol, family, rule) {#symbol, #rule},
#define CUDA_CALL(symbol)
#define NVML_CALL(symbol)
#include "driver/table.def"
#undef CUDA_HOOK
#undef NVML_HOOK
#undef CUDA_CALL
#undef NVML_CALL
  };
  std::set<std::string> symbols;
  for (const Row &row : kRows) {
    const std::string rule = row.rule, symbol = row.symbol;
    const bool shows = rule == "resolve" || rule == "start" || rule == "show";
    const bool unseen = rule == "follow" && symbol.rfind("cuStream", 0) == 0;  // captures are only noted
    if (!shows && !unseen && symbol.rfind("cu", 0) == 0) symbols.insert(symbol);
  }
  return symbols;
}

TEST(CoverageTest, EveryAccountedSymbolIsTested) {
  std::set<std::string> tested;
  for (const Maker &maker : makers()) {
    EXPECT_TRUE(tested.insert(maker.symbol).second) << maker.symbol << " is there twice";
    EXPECT_NE(find_releaser(maker.release), nullptr) << maker.release;
  }
  for (const Releaser &releaser : releasers()) EXPECT_TRUE(tested.insert(releaser.symbol).second) << releaser.symbol;
  std::set<std::string> accounted = accounted_symbols();
  for (const std::string &symbol : accounted) {
    EXPECT_TRUE(tested.count(symbol) != 0 || find_call(symbol) != nullptr) << symbol << " has no test";
  }
  for (const std::string &symbol : tested) EXPECT_EQ(accounted.count(symbol), 1u) << symbol << " is not hooked";
}

}  // namespace
}  // namespace vgpu::test
