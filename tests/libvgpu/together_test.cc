// Together with other allocators and with sanitizers, which ask for symbols before anything works.
#include <unistd.h>

#include "support.h"

namespace vgpu::test {

namespace {

class Together : public LevelTest {
 protected:
  // Compiles programs/opened.cc with a sanitizer; empty if this compiler cannot.
  std::string compiled(const std::string &compiler, const Words &flags) {
    if (!run({"sh", "-c", "command -v " + compiler}, node_.native()).succeeded()) {
      reason_ = compiler + " is not there";
      return "";
    }
    const std::string output = node_.scratch() + "/" + compiler;
    Words command = {compiler,
                     "-std=c++20",
                     "-g",
                     "-D__CUDA_API_VERSION_INTERNAL",
                     "-isystem",
                     PRELOAD_CUDA_INCLUDE,
                     source_path("tests/libvgpu/programs/opened.cc"),
                     "-o",
                     output,
                     "-ldl"};
    command.insert(command.end(), flags.begin(), flags.end());
    Environment environment = node_.native();
    environment.erase("LD_LIBRARY_PATH");
    const Result result = run(command, environment);
    if (!result.succeeded()) reason_ = compiler + " " + join(flags, " ") + " does not work here";
    return result.succeeded() ? output : "";
  }

  // ThreadSanitizer of this age cannot place its shadow when addresses are very random.
  static Words fixed_addresses(const Words &command) {
    Words fixed = {"setarch", "-R"};
    if (!run({"setarch", "-R", "true"}, {{"PATH", "/usr/bin:/bin"}}).succeeded()) fixed.clear();
    fixed.insert(fixed.end(), command.begin(), command.end());
    return fixed;
  }

  void expect_charged_everywhere(const std::string &client, const Environment &environment) {
    for (const Words &way : {Words{"libcuda.so.1", "local", "dlsym"}, Words{"libcuda.so.1", "local", "proc_v2"}}) {
      Words command = {client};
      command.insert(command.end(), way.begin(), way.end());
      expect_charged(command, environment);
    }
  }

  std::string reason_;
};
FOR_EACH_LEVEL(Together);

class Allocators : public LevelTest {
 protected:
  void expect_with(const std::string &allocator) {
    const Words clients[] = {{program("linked")},
                             {program("opened"), "libcuda.so.1", "local", "dlsym"},
                             {program("process"), "replaced"},
                             {program("process"), "forked_rank"}};
    for (const Words &client : clients) {
      for (const bool first : {true, false}) {
        const Environment environment = first ? node_.preloaded({allocator}, {}) : node_.preloaded({}, {allocator});
        const Result result = run(client, environment);
        EXPECT_TRUE(result.succeeded()) << join(client, " ") << (first ? ", before us: " : ", behind us: ") << result;
        EXPECT_NE(std::string::npos, result.out.find("over 2\n")) << result;
      }
    }
    for (const bool first : {true, false}) {
      const Result result = run({"python3", "-c", "print('fine')"},
                                first ? node_.preloaded({allocator}, {}) : node_.preloaded({}, {allocator}));
      EXPECT_EQ("fine\n", result.out) << result;
      EXPECT_EQ("", result.err);
    }
  }
};
FOR_EACH_LEVEL(Allocators);

TEST_P(Allocators, Jemalloc) {
  const std::string jemalloc = system_library("libjemalloc.so.2");
  if (jemalloc.empty()) GTEST_SKIP() << "jemalloc is not there; install libjemalloc2";
  expect_with(jemalloc);
}

TEST_P(Allocators, Tcmalloc) {
  const std::string tcmalloc = system_library("libtcmalloc_minimal.so.4");
  if (tcmalloc.empty()) GTEST_SKIP() << "tcmalloc is not there; install libtcmalloc-minimal4";
  expect_with(tcmalloc);
}

TEST_P(Together, AddressSanitizerOfClang) {
  const std::string client = compiled("clang++", {"-fsanitize=address"});
  if (client.empty()) GTEST_SKIP() << reason_;
  expect_charged_everywhere(client, node_.preloaded());
}

TEST_P(Together, AddressSanitizerOfGccStatic) {
  const std::string client = compiled("g++", {"-fsanitize=address", "-static-libasan"});
  if (client.empty()) GTEST_SKIP() << reason_;
  expect_charged_everywhere(client, node_.preloaded());
}

// Its library insists on being the first: it refuses to start, before main, and says so. docs/hooks.md has the remedies.
TEST_P(Together, AddressSanitizerOfGccShared) {
  const std::string client = compiled("g++", {"-fsanitize=address"});
  if (client.empty()) GTEST_SKIP() << reason_;
  const Result refused = run({client, "libcuda.so.1", "local", "dlsym"}, node_.preloaded());
  EXPECT_FALSE(refused.succeeded());
  EXPECT_NE(std::string::npos, refused.err.find("ASan runtime does not come first")) << refused;
  EXPECT_EQ("", refused.out);

  Environment unchecked = node_.preloaded();
  unchecked["ASAN_OPTIONS"] = "verify_asan_link_order=0";
  expect_charged_everywhere(client, unchecked);

  const Result where = run({"g++", "-print-file-name=libasan.so"}, node_.native());
  expect_charged_everywhere(client, node_.preloaded({lines_of(where.out).at(0)}, {}));
}

// The simulated driver does not work in such a program; what is seen here is that the program starts and runs.
TEST_P(Together, ThreadSanitizer) {
  for (const std::string compiler : {"g++", "clang++"}) {
    const std::string client = compiled(compiler, {"-fsanitize=thread"});
    if (client.empty()) GTEST_SKIP() << reason_;
    const Words command = fixed_addresses({client, "libno_such_library.so", "local", "dlsym"});
    const Result native = run(command, node_.native());
    const Result result = run(command, node_.preloaded());
    EXPECT_EQ(native.status, result.status) << result;
    EXPECT_EQ(native.out, result.out);
    EXPECT_EQ(native.err, result.err);
    EXPECT_NE(std::string::npos, native.out.find("libno_such_library.so: cannot open")) << native;
  }
}

}  // namespace

}  // namespace vgpu::test
