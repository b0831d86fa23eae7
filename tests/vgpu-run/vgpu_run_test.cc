// vgpu-run: what its ranks get, and what it returns.
#include <sys/stat.h>

#include <set>
#include <sstream>

#include "node/preload.h"
#include "node/private_region.h"
#include "node/probe.h"
#include "support.h"

namespace vgpu::test {

using namespace node;
using namespace region;
namespace {

using Words = std::vector<std::string>;

// ---- the region -----------------------------------------------------------------------------------------------------

class RunRegion : public VgpuRun {
 protected:
  // Starts a rank that waits, and reads its region.
  void inspect(const Words &options, Snapshot *snapshot) {
    Words words = options;
    words.insert(words.end(), {"--", "/bin/sh", "-c", "echo \"region $VGPU_REGION.\"; exec sleep 60"});
    Program program(scratch_.path(), command(words));
    ASSERT_TRUE(program.says(".\n")) << program.err();
    const std::string out = program.out();
    const std::string path = out.substr(7, out.size() - 9);
    EXPECT_EQ(path.rfind(parent() + "/" + std::to_string(program.pid()) + "-", 0), 0u) << path;
    struct stat status;
    ASSERT_EQ(stat(parent().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777u, 0700u);
    const Error error = Snapshot::read(path.c_str(), Trust::root_or_self, Detail::memory, snapshot);
    EXPECT_FALSE(error) << error.text;
    kill(program.pid(), SIGTERM);
    EXPECT_EQ(program.wait(), 128 + SIGTERM);
  }
};

TEST_F(RunRegion, HasTheLimitsThatWereAskedFor) {
  const struct {
    Words options;
    std::uint64_t memory[2];
    std::uint32_t sm;
    bool hooks;
  } rows[] = {
      {{}, {16 * kGiB, 8 * kGiB}, 100, false},
      {{"--gpu-mem=6G"}, {6 * kGiB, 6 * kGiB}, 100, false},
      {{"--gpu-mem", "50%", "--gpu-sm=25%"}, {8 * kGiB, 4 * kGiB}, 25, true},
      {{"--gpu-mem=3G,25%", "--gpu-sm", "100"}, {3 * kGiB, 2 * kGiB}, 100, false},
      {{"--gpu-mem=12G"}, {12 * kGiB, 8 * kGiB}, 100, false},  // no more than there is
  };
  for (const auto &row : rows) {
    Snapshot snapshot;
    inspect(row.options, &snapshot);
    ASSERT_EQ(snapshot.ndev(), 2u);
    EXPECT_EQ(snapshot.job().job_id, 0u);
    EXPECT_EQ(snapshot.job().uid, geteuid());
    EXPECT_EQ(snapshot.job().launch_hooks, row.hooks ? 1u : 0u);
    for (unsigned dev = 0; dev < 2; ++dev) {
      EXPECT_EQ(snapshot.device(dev).memory_limit, row.memory[dev]);
      EXPECT_EQ(snapshot.device(dev).sm_percent, row.sm);
      EXPECT_EQ(std::strncmp(snapshot.device(dev).identity.uuid, "GPU-", 4), 0);
    }
    EXPECT_STRNE(snapshot.device(0).identity.uuid, snapshot.device(1).identity.uuid);
  }
}

TEST_F(RunRegion, PromisesNothingThatTheDriverKeepsForItself) {
  setenv("SIMGPU_CONFIG", "context=64MiB; reserved=256MiB; device; memory=16GiB; device; memory=8GiB", 1);
  const std::uint64_t reserve = kGiB / 4;
  const struct {
    Words options;
    std::uint64_t memory[2];
  } rows[] = {
      {{}, {16 * kGiB - reserve, 8 * kGiB - reserve}},
      {{"--gpu-mem=50%"}, {8 * kGiB - reserve / 2, 4 * kGiB - reserve / 2}},
      {{"--gpu-mem=16G"}, {16 * kGiB - reserve, 8 * kGiB - reserve}},
      {{"--gpu-mem=7900M"}, {7900ull << 20, 7900ull << 20}},
  };
  for (const auto &row : rows) {
    Snapshot snapshot;
    inspect(row.options, &snapshot);
    ASSERT_EQ(snapshot.ndev(), 2u);
    for (unsigned dev = 0; dev < 2; ++dev) EXPECT_EQ(snapshot.device(dev).memory_limit, row.memory[dev]);
  }
}

// Somebody's word first, then what slurmd's list says of the same GPU and driver; else nothing is known.
TEST_F(RunRegion, KnowsWhatAContextTakes) {
  Snapshot snapshot;
  inspect({"--context=450M"}, &snapshot);
  ASSERT_EQ(snapshot.ndev(), 2u);
  for (unsigned dev = 0; dev < 2; ++dev) {
    EXPECT_EQ(snapshot.device(dev).context.bytes, 450u << 20);
    EXPECT_EQ(snapshot.device(dev).context.source, ContextSource::site);
  }
  inspect({}, &snapshot);
  EXPECT_EQ(snapshot.device(0).context.source, ContextSource::unknown);

  TemporaryDirectory regions;
  node::Node node;
  node::ProbeOptions probe;
  probe.program = VGPU_BUILD_DIR "/utils/vgpu-probe/vgpu-probe";
  probe.nvml = VGPU_BUILD_DIR "/simgpu/13.0/libnvidia-ml.so.1";
  ASSERT_FALSE(probe_devices(probe, &node));
  node.devices[1].context = {300 << 20, ContextSource::measured};
  node.devices[1].usable_bytes = 7 * kGiB;
  node.devices[1].block_bytes = 4 << 20;
  ASSERT_FALSE(write_node(regions.path() + "/node", node));
  setenv("VGPU_REGION_DIR", regions.path().c_str(), 1);
  inspect({}, &snapshot);
  EXPECT_EQ(snapshot.device(0).context.source, ContextSource::unknown);
  EXPECT_EQ(snapshot.device(1).context.bytes, 300u << 20);
  EXPECT_EQ(snapshot.device(1).context.source, ContextSource::measured);
  EXPECT_EQ(snapshot.device(1).usable_bytes, 7 * kGiB);
  EXPECT_EQ(snapshot.device(1).memory_limit, 7 * kGiB);
  EXPECT_EQ(snapshot.device(1).block_bytes, 4u << 20);
  node.driver = "1.2.3";
  ASSERT_FALSE(write_node(regions.path() + "/node", node));
  inspect({}, &snapshot);
  EXPECT_EQ(snapshot.device(1).context.source, ContextSource::unknown) << "of another driver";
  unsetenv("VGPU_REGION_DIR");
  EXPECT_EQ(run({"--context=50%", "--", "/bin/true"}).status, 2);
}

TEST_F(RunRegion, HasOnlyTheChosenGpus) {
  const struct {
    Words options;
    std::vector<std::uint64_t> memory;
  } rows[] = {
      {{"--gpus=1"}, {8 * kGiB}},
      {{"--gpus", "0"}, {16 * kGiB}},
      {{"--gpus=1,0"}, {8 * kGiB, 16 * kGiB}},
      {{"--gpus=1", "--gpu-mem=50%"}, {4 * kGiB}},
      {{"--gpus=1,0", "--gpu-mem=1G,2G"}, {1 * kGiB, 2 * kGiB}},
  };
  for (const auto &row : rows) {
    Snapshot snapshot;
    inspect(row.options, &snapshot);
    ASSERT_EQ(snapshot.ndev(), row.memory.size());
    for (unsigned dev = 0; dev < snapshot.ndev(); ++dev) EXPECT_EQ(snapshot.device(dev).memory_limit, row.memory[dev]);
  }
  const std::string show = "echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | sed 's/.*\\(.\\)/\\1/'";
  EXPECT_EQ(run({"--gpus=1,0", "--", "/bin/sh", "-c", show}).out, "2\n1\n") << "the last digits of two UUIDs";
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(run({"--", "/bin/sh", "-c", show}).out, "1\n") << "the user's own choice is not ours to change";
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(RunRegion, IsSharedByTheRanksOfMpirun) {
  if (std::system("mpirun --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "mpirun is missing";
  // In a directory of its own: mpirun would share /tmp/ompi.HOST.UID with those of other tests.
  const Words words = {"/bin/sh", "-c",
                       "exec env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=" + scratch_.path() +
                           " " VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run --gpu-mem=8G --library " + library_ +
                           " -- mpirun --oversubscribe -n 5 " + kRank + " 3072"};
  Program program(scratch_.path(), words);
  ASSERT_TRUE(eventually([&] { return program.out().size() == 5 * std::strlen("granted\n"); }))
      << program.out() << program.err();
  std::istringstream lines(program.out());
  int granted = 0;
  for (std::string line; lines >> line;) granted += line == "granted";
  EXPECT_EQ(granted, 2) << "two times 3 GiB fit into 8";
  kill(program.pid(), SIGTERM);
  EXPECT_NE(program.wait(), 0);
}

TEST_F(RunRegion, IsSummarizedAtTheEnd) {
  Program program(scratch_.path(), command({"-n", "2", "--gpu-mem=4G", "--", kRank, "3072"}));
  ASSERT_TRUE(eventually([&] { return program.out().size() == 2 * std::strlen("granted\n"); })) << program.err();
  const pid_t pid = program.pid();
  kill(pid, SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
  const std::string said = program.err();
  EXPECT_EQ(said.rfind("vgpu: vgpu-run " + std::to_string(pid) + " on ", 0), 0u) << said;
  EXPECT_NE(said.find(": peak 3GiB of 4GiB (75 %), 1 allocation refused, 0.0 s throttled\n"), std::string::npos)
      << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "the other GPU was not used";
}

TEST_F(RunRegion, IsSharedByAllRanks) {
  Program program(scratch_.path(), command({"-n", "5", "--gpu-mem=8G", "--", kRank, "3072"}));
  ASSERT_TRUE(eventually([&] { return program.out().size() == 5 * std::strlen("granted\n"); })) << program.err();
  std::istringstream lines(program.out());
  int granted = 0, refused = 0;
  for (std::string line; lines >> line;) (line == "granted" ? granted : refused)++;
  EXPECT_EQ(granted, 2) << "two times 3 GiB fit into 8";
  EXPECT_EQ(refused, 3);
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
}

// With the library of this build, which is found without being named, and a real client of the driver.
TEST_F(RunRegion, HoldsARealClient) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the client is not sanitized and cannot load a library that is";
#endif
  std::ofstream(scratch("orders")) << "ctx 0\nalloc 104857600\nalloc 2147483648\ninfo\n";
  Program program(scratch_.path(), {"/bin/sh", "-c",
                                    VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run --gpu-mem=1G -- " VGPU_BUILD_DIR
                                                   "/simgpu/simgpu-client <$SCRATCH/orders"});
  EXPECT_EQ(program.wait(), 0);
  std::istringstream answers(program.out());
  std::vector<std::string> lines;
  for (std::string line; std::getline(answers, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u) << program.out() << program.err();
  EXPECT_EQ(lines[0], "0");
  EXPECT_EQ(lines[1].substr(0, 2), "0 ");
  EXPECT_EQ(lines[2].substr(0, 2), "2 ") << "not refused";
  EXPECT_EQ(lines[3].substr(lines[3].rfind(' ')), " 1073741824") << "does not see its limit";
}

TEST_F(RunRegion, OfTheSurroundingJobIsKept) {
  setenv("VGPU_REGION", "/run/vgpu/4711", 1);
  const Words script = {"--", "/bin/sh", "-c", "echo $VGPU_REGION; grep -c libmarker.so /proc/self/maps"};
  Result result = run(script);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.rfind("/run/vgpu/4711\n", 0), 0u) << result.out;
  EXPECT_NE(result.out, "/run/vgpu/4711\n0\n") << "not preloaded";
  EXPECT_EQ(result.err, "");
  EXPECT_FALSE(std::filesystem::exists(parent())) << "made a region of its own";

  Words limited = {"--gpu-mem=100G"};
  limited.insert(limited.end(), script.begin(), script.end());
  result = run(limited);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.rfind("/run/vgpu/4711\n", 0), 0u) << result.out;
  EXPECT_EQ(result.err,
            "vgpu: the limits of /run/vgpu/4711 stay in force; --gpu-mem, --gpu-sm, --gpus and --context change "
            "nothing here\n");
}

TEST_F(RunRegion, OfTheSurroundingJobIsFoundInItsPlace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a mount namespace";
  if (std::system("unshare -m true 2>/dev/null") != 0) GTEST_SKIP() << "no mount namespaces here";
  const std::string script = "mount -t tmpfs none /run && mkdir -p /run/vgpu/self && exec " VGPU_BUILD_DIR
                             "/utils/vgpu-run/vgpu-run --library " +
                             library_ + " --gpu-sm=50 -- sh -c 'echo region=$VGPU_REGION.'";
  Program program(scratch_.path(), {"/usr/bin/unshare", "-m", "/bin/sh", "-c", script});
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(program.out(), "region=.\n");
  EXPECT_NE(program.err().find("/run/vgpu/self stay in force"), std::string::npos) << program.err();
  EXPECT_FALSE(std::filesystem::exists(parent()));
}

// As root, the same as somebody else; skipped where that somebody cannot reach the build tree.
TEST_F(RunRegion, IsForOrdinaryUsersOutsideOfJobs) {
  if (geteuid() != 0) GTEST_SKIP() << "the other tests run as an ordinary user already";
  const Words nobody = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  const auto run_as_nobody = [&](const Words &arguments) {
    Words words = nobody;
    const Words inner = command(arguments);
    words.insert(words.end(), inner.begin(), inner.end());
    Program program(scratch_.path(), words);
    const int status = program.wait();
    return Result{status, program.out(), program.err()};
  };
  if (run_as_nobody({"--version"}).status != 0) GTEST_SKIP() << "the build tree is root's alone, or setpriv is missing";
  ASSERT_EQ(chown(runtime_.path().c_str(), 65534, 65534), 0);
  ASSERT_EQ(std::system(VGPU_BUILD_DIR "/simgpu/simgpu-ctl devices >/dev/null"), 0);

  const Words script = {"--gpu-mem=1G", "--", "/bin/sh", "-c", "stat -c '%u %a' $VGPU_REGION $VGPU_REGION/*"};
  Result result = run_as_nobody(script);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "65534 700\n65534 644\n65534 600\n65534 600\n");

  setenv("SLURM_JOB_ID", "4711", 1);
  result = run_as_nobody(script);
  unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "vgpu: inside a Slurm job (4711) only Slurm sets limits; give --gpu-mem to srun\n");
}

TEST_F(RunRegion, IsNotMadeWhereSomebodyElseHasBeen) {
  std::filesystem::create_directory_symlink(scratch_.path(), parent());
  Result result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("is a link or a file"), std::string::npos) << result.err;
  std::filesystem::remove(parent());

  std::ofstream(parent()) << "x";
  result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("is a link or a file"), std::string::npos) << result.err;
  std::filesystem::remove(parent());

  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  mkdir(parent().c_str(), 0700);
  ASSERT_EQ(chown(parent().c_str(), 65534, 65534), 0);
  result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("belongs to uid 65534, not to you"), std::string::npos) << result.err;
}

TEST_F(RunRegion, IsMadeInAPrivateDirectoryWhateverItsModeWas) {
  mkdir(parent().c_str(), 0700);
  chmod(parent().c_str(), 0777);
  const mode_t mask = umask(0777);
  const Result result = run({"--", "/bin/sh", "-c", "stat -c %a ${VGPU_REGION%/*}"});
  umask(mask);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "700\n");
}

TEST_F(RunRegion, GoesToTmpWhenThereIsNoDirectoryOfTheUsers) {
  EXPECT_EQ(node::runtime_directory(runtime_.path().c_str()), runtime_.path());
  EXPECT_EQ(node::runtime_directory(nullptr), "/tmp");
  EXPECT_EQ(node::runtime_directory(""), "/tmp");
  EXPECT_EQ(node::runtime_directory("."), "/tmp");
  EXPECT_EQ(node::runtime_directory("/nonexistent/1000"), "/tmp");
  EXPECT_EQ(node::runtime_directory("/etc/passwd"), "/tmp");
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(chown(scratch_.path().c_str(), 65534, 65534), 0);
  EXPECT_EQ(node::runtime_directory(scratch_.path().c_str()), "/tmp") << "somebody else's";
}

TEST_F(RunRegion, WhosePathWouldBeTooLongIsRefused) {
  const std::string deep = runtime_.path() + "/" + std::string(200, 'x');
  mkdir(deep.c_str(), 0700);
  setenv("XDG_RUNTIME_DIR", (deep + "/" + std::string(20, 'y')).c_str(), 1);
  mkdir((deep + "/" + std::string(20, 'y')).c_str(), 0700);
  const Result result = run({"--", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("too long"), std::string::npos) << result.err;
}

// ---- the ranks ------------------------------------------------------------------------------------------------------

TEST_F(VgpuRun, PreloadsTheLibraryOnceAndKeepsTheUsers) {
  const std::string users = scratch("libusers.so");
  std::filesystem::copy_file(library_, users);
  setenv("LD_PRELOAD", (users + " " + library_).c_str(), 1);
  const Result result =
      run({"--", "/bin/sh", "-c",
           "echo $LD_PRELOAD; grep -o 'lib[a-z]*[.]so$' /proc/self/maps | sort -u | grep 'users\\|marker'"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, library_ + ":" + users + "\nlibmarker.so\nlibusers.so\n");
}

TEST(Preload, IsMerged) {
  const struct {
    const char *old, *merged;
  } rows[] = {
      {"", "/v.so"},
      {"/a.so", "/v.so:/a.so"},
      {"/v.so", "/v.so"},
      {"/a.so:/v.so", "/v.so:/a.so"},
      {"/a.so /b.so", "/v.so:/a.so:/b.so"},
      {"::/a.so: ", "/v.so:/a.so"},
      {"/v.so:/v.so", "/v.so"},
      {"/x/v.so:/v.so2", "/v.so:/x/v.so:/v.so2"},
  };
  for (const auto &row : rows) EXPECT_EQ(with_library(row.old, "/v.so"), row.merged) << row.old;
}

TEST_F(VgpuRun, StartsAsManyRanksAsAsked) {
  EXPECT_EQ(run({"--", "/bin/echo", "x"}).out, "x\n");
  EXPECT_EQ(run({"-n", "3", "--", "/bin/echo", "x"}).out, "x\nx\nx\n");
  EXPECT_EQ(run({"-n3", "/bin/echo", "-n", "--gpu-mem=x"}).out, "--gpu-mem=x--gpu-mem=x--gpu-mem=x")
      << "what is behind the program is the program's";
  EXPECT_EQ(run({"-n", "511", "--", "/bin/echo"}).out, std::string(511, '\n'));
}

TEST_F(VgpuRun, NumbersTheRanks) {
  std::istringstream lines(run({"-n", "3", "--", "/bin/sh", "-c", "echo $VGPU_RANK/$VGPU_SIZE"}).out);
  std::multiset<std::string> said;
  for (std::string line; lines >> line;) said.insert(line);
  EXPECT_EQ(said, (std::multiset<std::string>{"0/3", "1/3", "2/3"}));
}

// Each rank takes the next free number.
constexpr char kNumbered[] = "i=0; until mkdir $SCRATCH/n$i 2>/dev/null; do i=$((i+1)); done; ";

TEST_F(VgpuRun, ReturnsTheWorstStatus) {
  const struct {
    const char *action;
    int status;
  } rows[] = {
      {"exit 0", 0},
      {"exit $i", 3},
      {"exit $((3-i))", 3},
      {"[ $i = 2 ] && kill -KILL $$; exit 0", 137},
      {"[ $i = 2 ] && kill -TERM $$; exit 1", 143},
      {"[ $i = 2 ] && kill -TERM $$; exit 200", 200},
      {"exit 255", 255},
  };
  for (const auto &row : rows) {
    EXPECT_EQ(run({"-n", "4", "--", "/bin/sh", "-c", std::string(kNumbered) + row.action}).status, row.status)
        << row.action;
    for (const char *name : {"n0", "n1", "n2", "n3"}) std::filesystem::remove(scratch(name));
  }
}

TEST_F(VgpuRun, SaysOnceThatAProgramCannotBeStarted) {
  Result result = run({"-n", "4", "--", "no-such-program"});
  EXPECT_EQ(result.status, 127);
  EXPECT_EQ(result.err, "vgpu: cannot start no-such-program: No such file or directory\n");
  std::ofstream(scratch("data")) << "x";
  result = run({"-n", "4", "--", scratch("data")});
  EXPECT_EQ(result.status, 126);
  EXPECT_EQ(result.err, "vgpu: cannot start " + scratch("data") + ": Permission denied\n");
}

TEST_F(VgpuRun, HandsItsInputOn) {
  std::ofstream(scratch("input")) << "hello";
  const std::string script =
      VGPU_BUILD_DIR "/utils/vgpu-run/vgpu-run --library " + library_ + " -- cat <$SCRATCH/input";
  Program program(scratch_.path(), {"/bin/sh", "-c", script});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.out(), "hello");
}

// ---- what it says about itself --------------------------------------------------------------------------------------

TEST_F(VgpuRun, HelpFitsAScreenAndTheManualHasEveryOption) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  std::istringstream lines(result.out);
  int count = 0;
  std::string manual = read_file(VGPU_SOURCE_DIR "/utils/vgpu-run/vgpu-run.1");
  std::erase(manual, '\\');
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(line.size(), 80u) << line;
    for (std::size_t at = line.find("--"); line.rfind("  -", 0) == 0 && at != std::string::npos;
         at = std::string::npos) {
      const std::string option = line.substr(at, line.find(' ', at) - at);
      EXPECT_NE(manual.find(option), std::string::npos) << option << " is not in vgpu-run.1";
    }
  }
  EXPECT_GT(count, 10);
  EXPECT_LE(count, 24);
  EXPECT_EQ(run({"--version"}).out.rfind("vgpu-run (slurm-vgpu) ", 0), 0u);
}

}  // namespace
}  // namespace vgpu::test
