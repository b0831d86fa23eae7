// Every question for a function gets the answer it would get without us, with our hook in the place of what is hooked,
// and of nothing else.
#include <algorithm>
#include <set>

#include "libvgpu/support.h"

namespace vgpu::test {

namespace {

// "libcuda.so.1:cuInit", as it is when we are there: also for launches, where they are metered.
std::string hooked(std::string answer, bool metered = false) {
  static const Words symbols[] = {hooked_symbols(false), hooked_symbols(true)};
  static const std::set<std::string> sets[] = {{symbols[0].begin(), symbols[0].end()},
                                               {symbols[1].begin(), symbols[1].end()}};
  const std::set<std::string> &known = sets[metered];
  for (const std::string object : {"libcuda.so.1:", "libnvidia-ml.so.1:"}) {
    const std::size_t at = answer.find(object);
    if (at == std::string::npos) continue;
    std::size_t start = at + object.size();
    const std::string symbol = answer.substr(start, answer.find(' ', start) - start);
    if (known.count(symbol) != 0) answer.replace(at, object.size(), "libvgpu.so:");
  }
  return answer;
}

// A few lines say more than thousands.
void expect_same_lines(const Words &wanted, const Words &got) {
  ASSERT_EQ(wanted.size(), got.size());
  int shown = 0;
  for (std::size_t i = 0; i < wanted.size() && shown < 20; ++i) {
    EXPECT_EQ(wanted[i], got[i]);
    shown += wanted[i] != got[i];
  }
}

class Answers : public LevelTest {
 protected:
  Words ask(const Words &question, const Environment &environment) {
    Words command = {program("answers")};
    command.insert(command.end(), question.begin(), question.end());
    const Result result = run(command, environment);
    EXPECT_TRUE(result.succeeded()) << result;
    EXPECT_EQ("", result.err);
    return lines_of(result.out);
  }

  Environment untold() const {
    Environment environment = node_.preloaded();
    environment.erase("VGPU_REGION");
    return environment;
  }

  static Words every_version_of_what_is_hooked() {
    return {
        "versions",
        "cuNoSuchFunction",
        "cuLaunchKernel",
        "",
#define CUDA_HOOK(symbol, name, ...) #name,
#define NVML_HOOK(...)
#define CUDA_CALL(...)
#define NVML_CALL(...)
#include "driver/table.def"
#undef CUDA_CALL
#undef NVML_CALL
#undef CUDA_HOOK
#undef NVML_HOOK
    };
  }

  // All that any driver has, and what none has.
  const Words all_ = {"@" + source_path("simgpu/lists/cuda-13.0.txt"),
                      "@" + source_path("simgpu/lists/cuda-535.txt"),
                      "@" + source_path("simgpu/lists/nvml-535.txt"),
                      "cuNoSuchFunction",
                      "nvmlNoSuchFunction",
                      "puts",
                      "cu",
                      ""};
  Words with_all(const std::string &scope) const {
    Words question = {scope};
    question.insert(question.end(), all_.begin(), all_.end());
    return question;
  }
};
FOR_EACH_LEVEL(Answers);

TEST_P(Answers, OfTheLoader) {
  for (const bool metered : {false, true}) {
    if (metered) node_.create_metered_job();
    for (const std::string scope : {"local", "global"}) {
      SCOPED_TRACE(scope);
      const Words native = ask(with_all(scope), node_.native());
      ASSERT_LT(4000u, native.size());
      Words wanted;
      for (const std::string &line : native) wanted.push_back(hooked(line, metered));
      EXPECT_NE(wanted, native);
      expect_same_lines(wanted, ask(with_all(scope), node_.preloaded()));
      expect_same_lines(native, ask(with_all(scope), untold()));
    }
  }
}

// A program without CUDA must not take us for it.
TEST_P(Answers, OfTheLoaderWithoutADriver) {
  const Words native = ask(with_all("none"), node_.native());
  expect_same_lines(native, ask(with_all("none"), node_.preloaded()));
  expect_same_lines(native, ask(with_all("none"), untold()));
}

TEST_P(Answers, OfTheDriver) {
  for (const bool metered : {false, true}) {
    if (metered) node_.create_metered_job();
    for (const Words &question : {every_version_of_what_is_hooked(), with_all("newest")}) {
      const Words native = ask(question, node_.native());
      Words wanted;
      for (const std::string &line : native) wanted.push_back(hooked(line, metered));
      EXPECT_NE(wanted, native);
      expect_same_lines(wanted, ask(question, node_.preloaded()));
      expect_same_lines(native, ask(question, untold()));
    }
  }
}

// A driver with versions on its symbols is asked for one of them, and for one that it does not have.
class Versioned : public Answers {};
INSTANTIATE_TEST_SUITE_P(Driver, Versioned, testing::Values("13.0"));

TEST_P(Versioned, OnlyWhatHasTheVersionIsFound) {
  const Words names = {"cuInit", "cuMemAlloc_v2", "cuMemGetAddressRange_v2", "cuNoSuchFunction", "dlsym",
                       "dlvsym", "dlopen"};
  for (const std::string scope : {"none", "local", "global"}) {
    SCOPED_TRACE(scope);
    Words question = {scope};
    question.insert(question.end(), names.begin(), names.end());
    Environment native = node_.native(), preloaded = node_.preloaded();
    native["LD_LIBRARY_PATH"] = preloaded["LD_LIBRARY_PATH"] = build_path("tests/libvgpu/versioned");
    Words wanted, got;
    for (const std::string &line : ask(question, native)) {
      if (line.find('@') != std::string::npos) wanted.push_back(hooked(line));
    }
    for (const std::string &line : ask(question, preloaded)) {
      if (line.find('@') != std::string::npos) got.push_back(line);
    }
    const std::string ours = "next cuMemAlloc_v2@PRELOAD_TEST_1 libvgpu.so:cuMemAlloc_v2";
    EXPECT_EQ(scope == "global", std::count(wanted.begin(), wanted.end(), ours) == 1);
    expect_same_lines(wanted, got);
  }
}

// A driver may answer with addresses that are none of its symbols. Then the question decides.
class Hiding : public Answers {};
INSTANTIATE_TEST_SUITE_P(Driver, Hiding, testing::Values("13.0"));

TEST_P(Hiding, TheQuestionDecides) {
  const Words open = ask(every_version_of_what_is_hooked(), node_.native());
  Environment hiding = node_.preloaded();
  hiding["LD_LIBRARY_PATH"] = build_path("tests/libvgpu/hidden");
  const Words got = ask(every_version_of_what_is_hooked(), hiding);
  ASSERT_EQ(open.size(), got.size());
  Words wanted;
  for (const std::string &line : open) {
    const std::string with_hooks = hooked(line);
    const std::size_t own = with_hooks.find("libcuda.so.1:");
    wanted.push_back(own == std::string::npos ? with_hooks : with_hooks.substr(0, own) + "libcuda.so.1:?");
  }
  expect_same_lines(wanted, got);
  Environment inert = hiding;
  inert.erase("VGPU_REGION");
  for (const std::string &line : ask(every_version_of_what_is_hooked(), inert)) {
    EXPECT_EQ(std::string::npos, line.find("libvgpu.so")) << line;
  }
  expect_charged({program("opened"), "libcuda.so.1", "local", "proc_v2"}, hiding);
}

}  // namespace

}  // namespace vgpu::test
