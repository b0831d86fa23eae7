// Monitors that nobody here wrote, run inside a job: they show its processes and no others.
#include "hooks/nvml_support.h"

namespace vgpu::test {

namespace {

std::string output_of(const std::string &command) {
  FILE *pipe = popen(command.c_str(), "re");
  std::string out;
  char buffer[4096];
  for (size_t n; pipe != nullptr && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  if (pipe != nullptr) pclose(pipe);
  return out;
}

bool is_installed(const std::string &program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

class Monitors : public testing::Test {
 protected:
  Monitors() {
    for (Client *client : {&mine_, &other_, &stranger_}) {
      EXPECT_EQ("0", client->ask("ctx 0"));
      EXPECT_EQ("0", client->ask("alloc 104857600"));
    }
  }

  std::string in_job(const std::string &command) const {
    return "VGPU_REGION=" + job_.directory() + " LD_PRELOAD=" + libvgpu() + " " + command;
  }
  static bool shows(const std::string &text, const Client &client) {
    return text.find(std::to_string(client.host_pid())) != std::string::npos;
  }

  Job job_, other_job_;
  Client mine_{&job_}, other_{&other_job_}, stranger_{nullptr};
};

TEST_F(Monitors, GpustatShowsTheJob) {
  if (!is_installed("gpustat")) GTEST_SKIP() << "gpustat is not there; install the Debian package gpustat";
  const std::string command = "timeout 60 gpustat --no-color --show-pid --no-header 2>&1";
  const std::string inside = output_of(in_job(command));
  EXPECT_TRUE(shows(inside, mine_)) << inside;
  EXPECT_NE(std::string::npos, inside.find("/" + std::to_string(mine_.host_pid()) + "(104M)")) << inside;
  EXPECT_FALSE(shows(inside, other_)) << inside;
  EXPECT_FALSE(shows(inside, stranger_)) << inside;
  const std::string outside = output_of(command);
  for (const Client *client : {&mine_, &other_, &stranger_}) EXPECT_TRUE(shows(outside, *client)) << outside;
}

TEST_F(Monitors, NvtopShowsTheJob) {
  if (!is_installed("nvtop")) GTEST_SKIP() << "nvtop is not there; install the Debian package nvtop";
  if (!is_installed("tmux")) GTEST_SKIP() << "tmux is not there; install the Debian package tmux";
  const TemporaryDirectory scratch;
  const std::string tmux = "tmux -S " + scratch.path() + "/tmux ";
  const std::string start = tmux + "-f /dev/null new-session -d -x 180 -y 50 '" + in_job("exec nvtop") + "'";
  ASSERT_EQ(0, std::system(start.c_str()));
  std::string screen;
  for (unsigned tries = 0; tries < 100 && !shows(screen, mine_); ++tries) {
    sleep_ms(100);
    screen = output_of(tmux + "capture-pane -p 2>/dev/null");
  }
  std::system((tmux + "kill-server").c_str());
  EXPECT_TRUE(shows(screen, mine_)) << screen;
  EXPECT_FALSE(shows(screen, other_)) << screen;
  EXPECT_FALSE(shows(screen, stranger_)) << screen;
}

}  // namespace

}  // namespace vgpu::test
