// What the loader answers depends on who asks; we are never the one who asked.
#include <unistd.h>

#include "libvgpu/support.h"

namespace vgpu::test {

namespace {

class Scopes : public LevelTest {};
FOR_EACH_LEVEL(Scopes);

TEST_P(Scopes, AsWithoutUs) {
  // One of the plugins has a RUNPATH that is relative to where the program runs.
  const std::string where = build_path("tests/libvgpu/libraries");
  const Words command = {"/bin/sh",
                         "-c",
                         "cd " + where + " && exec \"$@\"",
                         "sh",
                         program("scopes"),
                         library("scope_origin"),
                         library("scope_relative")};
  const Result native = run(command, node_.native());
  ASSERT_TRUE(native.succeeded()) << native;
  for (const std::string line : {"origin next: below", "origin default: program", "origin own scope: only below",
                                 "origin libscope_beside.so: beside", "origin $ORIGIN/libscope_beside.so: beside",
                                 "relative libscope_beside.so: beside", "program's open: 1"}) {
    EXPECT_NE(std::string::npos, native.out.find(line)) << line << " in " << native;
  }
  Environment untold = node_.preloaded();
  untold.erase("VGPU_REGION");
  for (const Environment &environment : {node_.preloaded(), untold}) {
    const Result preloaded = run(command, environment);
    EXPECT_EQ(native.out, preloaded.out);
    EXPECT_EQ("", preloaded.err);
    EXPECT_EQ(native.status, preloaded.status);
  }
}

}  // namespace

}  // namespace vgpu::test
