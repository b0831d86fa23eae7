// What a program leaves out, the driver judges: with the library before it, every hooked call answers as without.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class NullTest : public HooksTest {
 protected:
  // The lines of hooks_client, and how it ended.
  std::vector<std::string> lines_of(const std::string &region) {
    const std::string path = directory_.path() + "/out";
    const ScopedFd out(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    Launch program = {built("tests/hooks/hooks_client"), {"nulls"}, environment_of_rank(node(), region)};
    program.environment.push_back("LSAN_OPTIONS=detect_leaks=0");  // nobody frees what has no handle
    program.standard[1] = out.get();
    int status = 0;
    waitpid(launch(program), &status, 0);
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    lines.push_back("status " + std::to_string(status));
    return lines;
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(NullTest, TheDriverJudgesWhatIsLeftOut) {
  const std::vector<std::string> native = lines_of("");
  ASSERT_EQ(native.back(), "status 0") << "after " << native.at(native.size() < 2 ? 0 : native.size() - 2);
  std::vector<DeviceSpec> devices = devices_of(node(), kNoLimit);
  for (DeviceSpec &device : devices)
    device.sm_percent = 50;  // launches have hooks too; one that is refused costs nothing
  make_region(devices);
  const std::vector<std::string> ours = lines_of(region());
  for (std::size_t i = 0; i < native.size() && i < ours.size(); ++i) EXPECT_EQ(native[i], ours[i]);
  EXPECT_EQ(native.size(), ours.size());
}

TEST_F(NullTest, NoHookIsLeftOut) {
  std::set<std::string> called;
  for (const std::string &line : lines_of("")) called.insert(line.substr(0, line.find(' ')));
  constexpr const char *kHooks[] = {
#define CUDA_HOOK(symbol, ...) #symbol,
#define NVML_HOOK(symbol, ...) #symbol,
#define CUDA_CALL(symbol)
#define NVML_CALL(symbol)
#include "driver/table.def"
#undef CUDA_HOOK
#undef NVML_HOOK
#undef CUDA_CALL
#undef NVML_CALL
  };
  for (const char *symbol : kHooks) EXPECT_EQ(called.count(symbol), 1u) << symbol << ": add it to null_calls.cc";
}

}  // namespace
}  // namespace vgpu::test
