// The parser reads gpu_mem_values.txt as its twin in etc/vgpu_submit.lua does, whose test has the same table.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "node/values.h"

namespace vgpu::node {
namespace {

// In the words of the table. The sentence around a refusal's reason is another test's business.
std::string meaning(const std::string &text) {
  MemoryLimit limit;
  if (Error error = parse_memory("--gpu-mem", text, &limit)) {
    const std::string sentence = error.text;
    const std::size_t remedy = sentence.rfind("; give ");
    const std::size_t why = sentence.rfind(": ", remedy);
    return "refused: " + sentence.substr(why + 2, remedy - why - 2);
  }
  if (limit.is_share()) return "millionths " + std::to_string(limit.percent_millionths);
  return "bytes " + std::to_string(limit.bytes);
}

TEST(SharedValues, MeanWhatTheTableSays) {
  std::ifstream table(VGPU_SOURCE_DIR "/tests/node/gpu_mem_values.txt");
  unsigned rows = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t end = line.rfind("\"\t");
    ASSERT_TRUE(line.starts_with('"') && end != std::string::npos) << line;
    EXPECT_EQ(line.substr(end + 2), meaning(line.substr(1, end - 1))) << line;
    ++rows;
  }
  EXPECT_GT(rows, 50u);
}

}  // namespace
}  // namespace vgpu::node
