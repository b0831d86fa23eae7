// However a program reaches the driver, what it allocates is charged.
#include "libvgpu/support.h"

namespace vgpu::test {

namespace {

class Catch : public LevelTest {};
FOR_EACH_LEVEL(Catch);

TEST_P(Catch, Linked) { expect_charged({program("linked")}, node_.preloaded()); }

TEST_P(Catch, OpenedByEveryName) {
  for (const std::string name : {"libcuda.so.1", "libcuda.so", "absolute"}) {
    const std::string path = name == "absolute" ? node_.driver_directory() + "/libcuda.so.1" : name;
    for (const char *scope : {"local", "global"}) {
      for (const char *way : {"dlsym", "proc", "proc_v2"}) {
        expect_charged({program("opened"), path, scope, way}, node_.preloaded());
      }
    }
  }
}

TEST_P(Catch, FoundInTheGlobalScope) {
  expect_charged({program("opened"), "libcuda.so.1", "global", "default"}, node_.preloaded());
  expect_charged({program("opened"), "libcuda.so.1", "global", "self"}, node_.preloaded());
}

// No driver has versions on its symbols today; the test's own does.
TEST_P(Catch, FoundByVersion) {
  Environment environment = node_.preloaded();
  environment["LD_LIBRARY_PATH"] = build_path("tests/libvgpu/versioned");
  expect_charged({program("opened"), "libcuda.so.1", "local", "dlvsym"}, environment);
  expect_charged({program("opened"), "libcuda.so.1", "global", "dlvsym"}, environment);
}

// Whatever the file is called, it is the driver.
TEST_P(Catch, OpenedUnderAnAlias) {
  const std::string alias = node_.scratch() + "/driver.so", copy = node_.scratch() + "/copy.so";
  ASSERT_EQ(0, symlink((node_.driver_directory() + "/libcuda.so.1").c_str(), alias.c_str()));
  write_text(copy, read_text(node_.driver_directory() + "/libcuda.so.1"));
  for (const std::string &path : {alias, copy}) {
    for (const char *way : {"dlsym", "proc_v2"}) {
      expect_charged({program("opened"), path, "local", way}, node_.preloaded());
    }
  }
}

TEST_P(Catch, Plugins) {
  expect_charged({program("host"), library("plugin")}, node_.preloaded());
  expect_charged({program("host"), library("plugin"), "deepbind"}, node_.preloaded());
  // The driver is in the plugin's scope alone.
  expect_charged({program("host"), library("plugin_default")}, node_.preloaded());
}

TEST_P(Catch, TheRuntime) {
  Environment environment = node_.preloaded();
  environment["LD_LIBRARY_PATH"] += ":" + build_path("simgpu/runtime");
  expect_charged({program("runtime")}, environment);
}

}  // namespace

}  // namespace vgpu::test
