// Who is alive: the evidence, one piece at a time, and the verdict.
#include "region/liveness.h"

#include <gtest/gtest.h>

namespace vgpu::region {
namespace {

TEST(ProcStat, NamesMayHoldAnything) {
  const char *rest = " S 1 2 3 4 5 4194560 6 7 8 9 10 11 12 13 20 0 5 0 987654321 1 2";
  for (const char *name : {"app", "a Zed) (x", ") (", "((((", "a b c", ") S 1 2 3"}) {
    const std::string text = "42 (" + std::string(name) + ")" + rest;
    ProcStat stat;
    ASSERT_TRUE(parse_proc_stat(text.c_str(), &stat)) << text;
    EXPECT_EQ(stat.state, 'S');
    EXPECT_EQ(stat.flags, 4194560u);
    EXPECT_EQ(stat.threads, 5u);
    EXPECT_EQ(stat.start_time, 987654321u);
  }
}

TEST(ProcStat, CutOffTextIsNotBelieved) {
  const std::string text = "42 (app) S 1 2 3 4 5 4194560 6 7 8 9 10 11 12 13 20 0 5 0 987654321";
  ProcStat stat;
  for (std::size_t length = 0; length + 9 < text.size(); ++length) {
    EXPECT_FALSE(parse_proc_stat(text.substr(0, length).c_str(), &stat)) << text.substr(0, length);
  }
  EXPECT_TRUE(parse_proc_stat(text.c_str(), &stat));
}

TEST(ProcStat, OurOwn) {
  const SelfIdentity self = identify_self();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_NE(self.start_time, 0u);
  EXPECT_NE(self.namespaces, 0u);
  EXPECT_TRUE(self.proc_is_ours);
}

TEST(Classify, EveryState) {
  const std::uint64_t start = 1000;
  EXPECT_EQ(classify({'R', 0, 1, start}, start), ProcessState::running);
  EXPECT_EQ(classify({'T', 0, 1, start}, start), ProcessState::running) << "stopped is not dead";
  EXPECT_EQ(classify({'D', 0, 1, start}, start), ProcessState::running);
  EXPECT_EQ(classify({'D', 4, 1, start}, start), ProcessState::leaving) << "the driver still has its files";
  EXPECT_EQ(classify({'Z', 4, 1, start}, start), ProcessState::zombie);
  EXPECT_EQ(classify({'X', 4, 0, start}, start), ProcessState::zombie);
  EXPECT_EQ(classify({'Z', 4, 2, start}, start), ProcessState::leaving) << "the leader ended, a thread is still there";
  EXPECT_EQ(classify({'R', 0, 1, start + 1}, start), ProcessState::replaced);
  EXPECT_EQ(classify({'R', 0, 1, start + (std::uint64_t{1} << 26)}, start), ProcessState::running)
      << "26 bits are all an owner word has";
}

// The whole truth table, by the rules of docs/architecture.md.
TEST(Judge, EveryCombination) {
  const ProcessState states[] = {ProcessState::absent,  ProcessState::replaced, ProcessState::zombie,
                                 ProcessState::leaving, ProcessState::running,  ProcessState::unknown};
  for (const bool same : {false, true}) {
    for (const ProcessState state : states) {
      const bool gone =
          same && (state == ProcessState::absent || state == ProcessState::replaced || state == ProcessState::zombie);
      SCOPED_TRACE(testing::Message() << "same namespace " << same << ", process " << static_cast<int>(state));
      for (const Token token : {Token::free, Token::held, Token::unknown}) {
        EXPECT_EQ(judge({same, false, token, state}), gone ? Verdict::dead : Verdict::alive)
            << "without a token only /proc counts";
      }
      EXPECT_EQ(judge({same, true, Token::held, state}), gone ? Verdict::dead_after_grace : Verdict::alive);
      EXPECT_EQ(judge({same, true, Token::unknown, state}),
                same && state == ProcessState::absent ? Verdict::dead : Verdict::alive);
      const Verdict when_free = gone                                     ? Verdict::dead
                                : same && state == ProcessState::leaving ? Verdict::alive
                                                                         : Verdict::dead_after_grace;
      EXPECT_EQ(judge({same, true, Token::free, state}), when_free);
    }
  }
}

TEST(Namespaces, AreEnteredOnceAndTheTableFills) {
  alignas(kLine) static char memory[usage_size(1)];
  const Usage usage(memory, 1);
  EXPECT_EQ(enter_namespace(usage, 0), kUnknownNamespace);
  EXPECT_EQ(find_namespace(usage, 100), kUnknownNamespace);
  for (unsigned i = 0; i < kUnknownNamespace; ++i) {
    EXPECT_EQ(enter_namespace(usage, 100 + i), i);
    EXPECT_EQ(enter_namespace(usage, 100 + i), i);
    EXPECT_EQ(find_namespace(usage, 100 + i), i);
  }
  EXPECT_EQ(enter_namespace(usage, 999), kUnknownNamespace);
}

}  // namespace
}  // namespace vgpu::region
