// Programs that never meet the driver do not meet us either.
#include <unistd.h>

#include <algorithm>

#include "support.h"

namespace vgpu::test {

namespace {

// How many system calls a program that does nothing makes more because of us, all told: the loader's for one more
// library, and ours.
constexpr std::size_t kAddedCalls = 12;

bool have(const std::string &tool) {
  return run({"sh", "-c", "command -v " + tool}, {{"PATH", "/usr/local/bin:/usr/bin:/bin"}}).succeeded();
}

class Manners : public testing::Test {
 protected:
  Manners() : node_("13.0") { node_.create_job(); }

  Environment untold() const {
    Environment environment = node_.preloaded();
    environment.erase("VGPU_REGION");
    return environment;
  }

  Words traced(const Environment &environment, const std::string &command) {
    Words arguments = {"strace", "-f", "-o", node_.scratch() + "/trace"};
    // Not strace itself.
    for (const char *name : {"LD_PRELOAD", "VGPU_REGION"}) {
      if (environment.count(name) != 0) arguments.insert(arguments.end(), {"-E", name + ("=" + environment.at(name))});
    }
    arguments.push_back(command);
    EXPECT_TRUE(run(arguments, node_.native()).succeeded());
    return lines_of(read_text(node_.scratch() + "/trace"));
  }

  static Words opened_in(const Words &trace) {
    Words files;
    for (const std::string &line : trace) {
      const std::size_t at = line.find("open");
      if (at == std::string::npos || line.find("O_RDONLY") == std::string::npos) continue;
      const std::size_t start = line.find('"') + 1;
      files.push_back(line.substr(start, line.find('"', start) - start));
    }
    return files;
  }

  Node node_;
};

TEST_F(Manners, NothingIsOpenedAtTheStart) {
  if (!have("strace")) GTEST_SKIP() << "strace is not there; install strace";
  const Words native = traced(node_.native(), "true");
  for (const Environment &environment : {node_.preloaded(), untold()}) {
    const Words preloaded = traced(environment, "true");
    Words opened = opened_in(preloaded);
    EXPECT_EQ(1, std::count(opened.begin(), opened.end(), libvgpu()));
    opened.erase(std::remove(opened.begin(), opened.end(), libvgpu()), opened.end());
    EXPECT_EQ(opened_in(native), opened);
    EXPECT_LE(preloaded.size(), native.size() + kAddedCalls) << join(preloaded, "\n");
    RecordProperty("added_system_calls", static_cast<int>(preloaded.size() - native.size()));
  }
}

TEST_F(Manners, ProgramsWithoutCudaDoNotNotice) {
  const Words commands[] = {
      {"bash", "-c", "for i in 1 2 3; do echo $(true; echo $i); done; exit 3"},
      {"sh", "-c", "ls / >/dev/null && echo done >&2"},
      {"python3", "-c",
       "import ctypes, threading, subprocess\nprint(ctypes.CDLL(None).getpid() > 0)\n"
       "t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()\n"
       "print(subprocess.run(['echo', 'child'], capture_output=True).stdout)"},
      {"perl", "-e", "print qq(perl\\n); warn qq(warning\\n)"},
      {"env", "-i", "PATH=/usr/bin:/bin", "sh", "-c", "echo clean"},
  };
  for (const Words &command : commands) {
    SCOPED_TRACE(command[0]);
    if (!have(command[0])) continue;
    const Result native = run(command, node_.native());
    Environment talkative = node_.preloaded();
    talkative["VGPU_LOG"] = "debug";
    for (const Environment &environment : {node_.preloaded(), untold(), talkative}) {
      const Result result = run(command, environment);
      EXPECT_EQ(native.status, result.status);
      EXPECT_EQ(native.out, result.out);
      EXPECT_EQ(native.err, result.err);
    }
  }
}

// Many libraries, many threads, a signal handler for faults of its own, much memory reserved.
TEST_F(Manners, JavaStarts) {
  if (!have("java")) GTEST_SKIP() << "java is not there; install default-jre-headless to see this too";
  const Result native = run({"java", "-version"}, node_.native());
  const Result result = run({"java", "-version"}, node_.preloaded());
  EXPECT_EQ(native.out, result.out);
  EXPECT_EQ(native.err, result.err);
}

TEST_F(Manners, StandardOutputIsTheProgramsAlone) {
  Environment talkative = node_.preloaded();
  talkative["VGPU_LOG"] = "debug";
  const Result quiet = run({program("linked")}, node_.preloaded());
  const Result loud = run({program("linked")}, talkative);
  EXPECT_EQ(quiet.out, loud.out);
  EXPECT_LT(lines_of(quiet.err).size(), lines_of(loud.err).size());
  for (const std::string &line : lines_of(loud.err)) EXPECT_EQ(0u, line.find("vgpu: ")) << line;
}

// The loader binds such a reference to us, as to any preloaded library: the call says that there is no driver.
TEST_F(Manners, AWeakReferenceWithoutADriver) {
  EXPECT_EQ("-1\n", run({program("weak")}, node_.native()).out);
  EXPECT_EQ("500\n", run({program("weak")}, node_.preloaded()).out);
  EXPECT_EQ("500\n", run({program("weak")}, untold()).out);
}

}  // namespace

}  // namespace vgpu::test
