// Whatever processes do around the driver, the accounts are right and the program goes its way.
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

namespace vgpu::test {

namespace {

class Process : public LevelTest {
 protected:
  Words does(const std::string &what) const { return {program("process"), what}; }

  // Still holds, at its "holding", what it held before.
  void expect_keeps(const std::string &what) {
    Running client(does(what), node_.preloaded());
    ASSERT_TRUE(client.says("holding")) << client.finish();
    EXPECT_EQ(kContextBytes + kHeldBytes, node_.held(client.pid()));
    EXPECT_EQ(kContextBytes + kHeldBytes, node_.charged(client.pid()));
    const Result result = client.finish();
    EXPECT_TRUE(result.succeeded()) << result;
    EXPECT_EQ("", result.err);
  }
};
FOR_EACH_LEVEL(Process);

TEST_P(Process, AForkedChildThatDoesNothing) { expect_keeps("idle_child"); }
TEST_P(Process, ChildrenByVforkSpawnAndSystem) { expect_keeps("spawned_children"); }
TEST_P(Process, Threads) { expect_keeps("threads"); }

TEST_P(Process, ARankThatWasForked) {
  Running client(does("forked_rank"), node_.preloaded());
  ASSERT_TRUE(client.says("holding")) << client.finish();
  EXPECT_EQ(kContextBytes + kHeldBytes, node_.held());
  EXPECT_EQ(0u, node_.charged(client.pid())) << "the parent took a place it does not need";
  const Result result = client.finish();
  EXPECT_TRUE(result.succeeded()) << result;
}

TEST_P(Process, AProgramThatReplacesItself) { expect_charged(does("replaced"), node_.preloaded()); }
TEST_P(Process, LibrariesClosedAndOpenedAgain) { expect_charged(does("reopened"), node_.preloaded()); }
TEST_P(Process, AllDescriptorsClosedBefore) { expect_charged(does("closed_before"), node_.preloaded()); }
TEST_P(Process, AnEnvironmentThatWasCleared) { expect_charged(does("cleared_environment"), node_.preloaded()); }

TEST_P(Process, TheDriverIsCalledUntilTheVeryEnd) {
  const Result native = run(does("late"), node_.native());
  EXPECT_EQ("handler allocates 0\nhandler frees 0\ndestructor 0\n", native.out);
  const Result result = run(does("late"), node_.preloaded());
  EXPECT_EQ(native.out, result.out);
  EXPECT_EQ("", result.err);
  EXPECT_TRUE(result.succeeded()) << result;
  EXPECT_TRUE(node_.nothing_held());
}

TEST_P(Process, NoDescriptorIsKept) {
  const Result native = run(does("descriptors"), node_.native());
  const Result result = run(does("descriptors"), node_.preloaded());
  // NVML, which we ask for what a context takes, has its own one to the driver.
  const int had = std::stoi(native.out), has = std::stoi(result.out);
  EXPECT_LE(has, had + 1) << native << result;
}

TEST_P(Process, StandardErrorThatIsAProgramsData) {
  const std::string file = node_.scratch() + "/data";
  const Result result = run({program("process"), "reused_descriptors", file}, node_.preloaded());
  EXPECT_EQ("over 2\nasync 2\n", result.out) << result;
  EXPECT_EQ("data\n", read_text(file));
  EXPECT_EQ("", result.err);
}

TEST_P(Process, StandardErrorThatNobodyReads) {
  // exec: the shell's own write to the closed pipe must not be what is tested.
  const std::string command = "exec 2> >(exec 0<&-; true); sleep 0.2; exec \"$0\" refused_once";
  const Result result = run({"bash", "-c", command, program("process")}, node_.preloaded());
  EXPECT_EQ("over 2\nover 2\nover 2\n", result.out) << result;
  EXPECT_TRUE(result.succeeded()) << result;
}

TEST_P(Process, NoStandardErrorAtAll) {
  const Result result = run({"bash", "-c", "exec \"$0\" refused_once 2>&-", program("process")}, node_.preloaded());
  EXPECT_EQ("over 2\nover 2\nover 2\n", result.out) << result;
  EXPECT_TRUE(result.succeeded()) << result;
}

TEST_P(Process, OneLineForManyRefusals) {
  const Result result = run(does("refused_once"), node_.preloaded());
  EXPECT_EQ("over 2\nover 2\nover 2\n", result.out);
  EXPECT_EQ(1u, lines_of(result.err).size()) << result;
}

TEST_P(Process, FunctionsPatchedInPlace) {
  for (const char *what : {"found", "driver"}) {
    const Words command = {program("patcher"), what};
    expect_charged(command, node_.preloaded());
    const Result result = run(command, node_.preloaded());
    // Behind us a refused allocation does not reach the driver.
    const std::string seen = what == std::string("found") ? "observed 3\n" : "observed 2\n";
    EXPECT_NE(std::string::npos, result.out.find(seen)) << result;
  }
}

}  // namespace

}  // namespace vgpu::test
