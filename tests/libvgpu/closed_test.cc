// Told of a region that cannot be had, nothing can be had. Told of none, we are not there.
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>

#include "region/layout.h"
#include "support.h"

namespace vgpu::test {

using namespace region;

namespace {

constexpr uid_t kNobody = 65534;
constexpr char kNotReady[] = "cuInit 802\n";

// Runs "$@" in a user namespace whose only user is kNobody, called root there: the world as a user's own container sees
// it. Written from outside, because only there may the map name somebody else.
constexpr char kInUserNamespace[] = R"(
/usr/bin/unshare --user /bin/sh -c 'until grep -q . /proc/self/uid_map; do sleep 0.01; done; exec "$@"' sh "$@" &
until echo 0 65534 1 2>/dev/null >/proc/$!/uid_map; do kill -0 $! || exit 1; sleep 0.01; done
wait $!
)";

class Closed : public LevelTest {
 protected:
  Environment told(const std::string &region) const {
    Environment environment = node_.preloaded();
    environment["VGPU_REGION"] = region;
    return environment;
  }

  Result attempt(const std::string &way, const Environment &environment) const {
    Words command = launcher_;
    command.insert(command.end(), {program("attempts"), way});
    return run(command, environment);
  }

  // False: not allowed here.
  bool enter_user_namespace() {
    if (geteuid() != 0 || !run({"/usr/bin/unshare", "--user", "/bin/true"}, {}).succeeded()) return false;
    launcher_ = {"/bin/sh", "-c", kInUserNamespace, "sh"};
    return true;
  }

  // Every way is shut, and one line says why.
  void expect_closed(const Environment &environment, const std::string &why) {
    for (const std::string way : {"linked", "dlsym", "proc"}) {
      SCOPED_TRACE(why + ", " + way);
      const Result result = attempt(way, environment);
      EXPECT_TRUE(result.succeeded()) << result;
      EXPECT_EQ(0u, result.out.find(kNotReady)) << result;
      for (const std::string &line : lines_of(result.out)) {
        EXPECT_EQ(std::string::npos, line.find(" 0")) << result;
      }
      const Words said = lines_of(result.err);
      ASSERT_EQ(1u, said.size()) << result;
      EXPECT_EQ(0u, said[0].find("vgpu: ")) << said[0];
      EXPECT_NE(std::string::npos, said[0].find(why)) << said[0];
      EXPECT_NE(std::string::npos, said[0].find("; the GPU cannot be used")) << said[0];
    }
  }

  void expect_open(const Environment &environment, std::size_t lines) {
    for (const std::string way : {"linked", "dlsym", "proc"}) {
      SCOPED_TRACE(way);
      const Result result = attempt(way, environment);
      EXPECT_TRUE(result.succeeded() && !result.out.empty()) << result;
      for (const std::string &line : lines_of(result.out)) {
        EXPECT_TRUE(line == "end" || line.find(" 0") != std::string::npos) << result;
      }
      EXPECT_EQ(lines, lines_of(result.err).size()) << result;
    }
  }

  void overwrite(const std::string &file, std::size_t offset, const std::string &bytes) {
    std::string text = read_text(node_.region_path() + "/" + file);
    ASSERT_LE(offset + bytes.size(), text.size());
    text.replace(offset, bytes.size(), bytes);
    write_text(node_.region_path() + "/" + file, text);
  }

  void choose_open(const std::string &second_line = "on-error open") {
    write_text(site_file(), "vgpu-node 1\n" + second_line + "\nend 0\n");
    chmod(site_file().c_str(), 0644);
  }
  std::string site_file() const { return node_.scratch() + "/node"; }
  std::string missing() const { return node_.scratch() + "/none"; }

 private:
  Words launcher_;  // what the programs are started through
};
FOR_EACH_LEVEL(Closed);

TEST_P(Closed, Missing) {
  expect_closed(told(missing()), "there is no region");
  expect_closed(told("relative/path"), "a region's path is absolute");
  expect_closed(told("/" + std::string(400, 'x')), "x");
}

TEST_P(Closed, AnotherVersion) {
  overwrite("limits", offsetof(FileHeader, layout), std::string("\x63\0\0\0", 4));
  expect_closed(told(node_.region_path()), "layout version 99");
}

TEST_P(Closed, Truncated) {
  const std::string limits = node_.region_path() + "/limits", usage = node_.region_path() + "/usage";
  const auto size = std::filesystem::file_size(usage);
  ASSERT_EQ(0, truncate(usage.c_str(), 100));
  expect_closed(told(node_.region_path()), "usage has 100 bytes");
  ASSERT_EQ(0, truncate(usage.c_str(), static_cast<off_t>(size)));
  ASSERT_EQ(0, truncate(limits.c_str(), 10));
  expect_closed(told(node_.region_path()), "limits is cut off");
}

TEST_P(Closed, Foreign) {
  overwrite("limits", 0, "ELFELFEL");
  expect_closed(told(node_.region_path()), "limits is not a slurm-vgpu file");
}

TEST_P(Closed, Links) {
  const std::string link = node_.scratch() + "/link";
  ASSERT_EQ(0, symlink(node_.region_path().c_str(), link.c_str()));
  expect_closed(told(link), "is not a directory of its own");
  const std::string limits = node_.region_path() + "/limits";
  std::filesystem::rename(limits, limits + ".elsewhere");
  ASSERT_EQ(0, symlink((limits + ".elsewhere").c_str(), limits.c_str()));
  expect_closed(told(node_.region_path()), "limits is a symbolic link");
}

TEST_P(Closed, WritableByOthers) {
  ASSERT_EQ(0, chmod((node_.region_path() + "/limits").c_str(), 0666));
  expect_closed(told(node_.region_path()), "may be written by others");
}

TEST_P(Closed, NotRootsInsideAJob) {
  Environment environment = told(node_.region_path());
  environment["SLURM_JOB_ID"] = "7";
  if (geteuid() == 0) {
    expect_charged({program("linked")}, environment);
    for (const char *part : {"", "/limits", "/usage"}) {
      ASSERT_EQ(0, chown((node_.region_path() + part).c_str(), kNobody, kNobody));
    }
  }
  expect_closed(environment, "not to root");
}

TEST_P(Closed, TheSiteMayChooseOpen) {
  choose_open();
  expect_open(told(missing()), 1);
  const Result result = run({program("attempts"), "linked"}, told(missing()));
  EXPECT_NE(std::string::npos, result.err.find("this site lets the program go on without limits")) << result;
  // Its own region, when it is there, counts.
  expect_charged({program("linked")}, told(node_.region_path()));
}

// Failing open is for what went wrong on the node. The file in which a program counts is its user's to spoil, and so are its
// own descriptors.
TEST_P(Closed, OpenIsNotForWhatTheUserSpoiled) {
  choose_open();
  const std::string usage = node_.region_path() + "/usage";
  const auto size = std::filesystem::file_size(usage);
  ASSERT_EQ(0, truncate(usage.c_str(), 100));
  expect_closed(told(node_.region_path()), "usage has 100 bytes");
  ASSERT_EQ(0, truncate(usage.c_str(), 0));
  ASSERT_EQ(0, truncate(usage.c_str(), static_cast<off_t>(size)));
  expect_closed(told(node_.region_path()), "usage is not a slurm-vgpu file");
  ASSERT_EQ(0, chmod(usage.c_str(), 0666));
  expect_closed(told(node_.region_path()), "usage may be written by others");
  if (geteuid() != 0) {
    ASSERT_EQ(0, chmod(usage.c_str(), 0));
    expect_closed(told(node_.region_path()), "cannot open");
  }
  overwrite("limits", offsetof(FileHeader, layout), std::string("\x63\0\0\0", 4));
  expect_open(told(node_.region_path()), 1);
}

TEST_P(Closed, AChoiceThatIsNotTheSites) {
  for (const char *line : {"on-error closed", "on-error opened", "", "# on-error open"}) {
    choose_open(line);
    expect_closed(told(missing()), "there is no region");
  }
  for (const char *text : {"on-error open\n", "something else\non-error open\n", ""}) {
    write_text(site_file(), text);
    expect_closed(told(missing()), "there is no region");
  }

  choose_open();
  ASSERT_EQ(0, chmod(site_file().c_str(), 0666));
  expect_closed(told(missing()), "there is no region");
  chmod(site_file().c_str(), 0644);

  std::filesystem::rename(site_file(), site_file() + ".elsewhere");
  ASSERT_EQ(0, symlink((site_file() + ".elsewhere").c_str(), site_file().c_str()));
  expect_closed(told(missing()), "there is no region");
  std::filesystem::remove(site_file());

  ASSERT_EQ(0, mkfifo(site_file().c_str(), 0644));
  expect_closed(told(missing()), "there is no region");
  std::filesystem::remove(site_file());
}

TEST_P(Closed, AChoiceOfTheUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  choose_open();
  ASSERT_EQ(0, chown(site_file().c_str(), kNobody, kNobody));
  expect_closed(told(missing()), "there is no region");
}

TEST_P(Closed, TheSitesChoiceCountsInARootlessContainer) {
  if (!enter_user_namespace()) GTEST_SKIP() << "needs root and user namespaces";
  choose_open();
  Environment environment = told(missing());
  environment["SLURM_JOB_ID"] = "7";
  expect_open(environment, 1);  // root's file looks like nobody's there
}

TEST_P(Closed, AUserWhoLooksLikeRootIsNotTheSite) {
  if (!enter_user_namespace()) GTEST_SKIP() << "needs root and user namespaces";
  choose_open();
  ASSERT_EQ(0, chown(site_file().c_str(), kNobody, kNobody));
  Environment environment = told(missing());
  environment["SLURM_JOB_ID"] = "7";
  expect_closed(environment, "there is no region");  // the user's file looks like root's there
}

TEST_P(Closed, ToldNothingItIsInert) {
  Environment environment = node_.preloaded();
  environment.erase("VGPU_REGION");
  expect_open(environment, 0);
  environment["VGPU_REGION"] = "";
  expect_open(environment, 0);
}

}  // namespace

}  // namespace vgpu::test
