// Together with other tools that interpose the same functions, in front of us or behind us.
#include "libvgpu/support.h"

namespace vgpu::test {

namespace {

class Interposers : public LevelTest {
 protected:
  static bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

  static bool was_asked(const Result &result) { return has(result.err, "interposer: was asked"); }

  Environment alone(const std::string &name) const {
    Environment environment = node_.native();
    environment["LD_PRELOAD"] = library(name);
    return environment;
  }
};
FOR_EACH_LEVEL(Interposers);

TEST_P(Interposers, OfTheLoader) {
  const Words ways[] = {{"libcuda.so.1", "local", "dlsym"},
                        {"libcuda.so.1", "global", "default"},
                        {"libcuda.so.1", "global", "self"},
                        {"libcuda.so.1", "local", "proc_v2"}};
  for (const std::string kind : {"next", "version", "walk", "libc"}) {
    const std::string other = "interposer_" + kind;
    for (const Words &way : ways) {
      Words command = {program("opened")};
      command.insert(command.end(), way.begin(), way.end());
      SCOPED_TRACE(other + ": " + join(command, " "));
      const bool asked = was_asked(run(command, alone(other)));
      // One that goes straight to libc leaves out all who come after it: see docs/hooks.md.
      if (kind != "libc") {
        expect_charged(command, node_.preloaded({library(other)}, {}));
        EXPECT_TRUE(!asked || was_asked(run(command, node_.preloaded({library(other)}, {}))));
      }
      expect_charged(command, node_.preloaded({}, {library(other)}));
      EXPECT_TRUE(!asked || was_asked(run(command, node_.preloaded({}, {library(other)}))));
    }
  }
}

TEST_P(Interposers, OfTheDriver) {
  const Words ways[] = {{program("linked")},
                        {program("opened"), "libcuda.so.1", "local", "dlsym"},
                        {program("opened"), "libcuda.so.1", "global", "default"},
                        {program("opened"), "libcuda.so.1", "global", "self"},
                        {program("opened"), "libcuda.so.1", "local", "proc_v2"}};
  for (const Words &command : ways) {
    SCOPED_TRACE(join(command, " "));
    const bool called = has(run(command, alone("wrapper")).err, "wrapper: called");
    for (const bool first : {true, false}) {
      const Words other = {library("wrapper")};
      const Environment environment = first ? node_.preloaded(other, {}) : node_.preloaded({}, other);
      expect_charged(command, environment);
      EXPECT_EQ(called, has(run(command, environment).err, "wrapper: called")) << (first ? "before us" : "behind us");
    }
  }
}

}  // namespace

}  // namespace vgpu::test
