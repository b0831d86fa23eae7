// vgpuctl: what it prints of prepared regions, and with which status it ends.
#include "base/clock.h"
#include "node/history.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

using Words = std::vector<std::string>;

bool has_program(const std::string &name) { return std::system(("command -v " + name + " >/dev/null").c_str()) == 0; }

// ---- list -----------------------------------------------------------------------------------------------------------

// Whoever was killed cannot give back what it held; nobody counts it all the same.
TEST_F(Vgpuctl, DeadRanksDoNotCount) {
  create(7, 0, {kGiB});
  EXPECT_TRUE(add_rank(7).reserve(428 * kMiB));
  EXPECT_TRUE(add_rank(7).reserve(428 * kMiB));
  ranks_.back()->end(SIGKILL);
  EXPECT_EQ(run({"list", "-n", "-P", "-o", "mem-used,mem%,procs,peak"}).out, "428MiB|42%|1|856MiB\n");
  const std::string shown = run({"show", "7"}).out;
  EXPECT_NE(shown.find("memory:       428MiB of 1GiB (42%), peak 856MiB"), std::string::npos) << shown;
  const std::string metrics = run({"metrics", "--no-sm"}).out;
  EXPECT_NE(metrics.find("vgpu_memory_used_bytes{slurmjobid=\"7\",user=\"root\",gpu=\"0\",UUID=\"" +
                         std::string(make_device(0).identity.uuid) + "\",Hostname=\"n1\"} 448790528\n"),
            std::string::npos)
      << metrics;
  const std::string json = run({"list", "--json"}).out;
  EXPECT_NE(json.find("\"memory_used_bytes\": 448790528,"), std::string::npos) << json;
  node::History history(1);
  ASSERT_FALSE(read_history(path("7"), 1, &history));
  EXPECT_EQ(history.devices[0].last_used, 428 * kMiB) << "the report's average";
}

TEST_F(Vgpuctl, ShowsWhatAContextTakesAndHowThatIsKnown) {
  const auto shown = [&](unsigned job, ContextFigure context) {
    DeviceSpec device;
    device.identity = make_device(0).identity;
    device.memory_limit = kGiB;
    device.context = context;
    device.usable_bytes = 15 * kGiB;
    const RegionSpec spec = {job, 0, false, 1, &device};
    EXPECT_FALSE(Region::create(regions_.path().c_str(), std::to_string(job).c_str(), spec));
    return run({"show", std::to_string(job)}).out;
  };
  std::string out = shown(1, {436 * kMiB, ContextSource::measured});
  EXPECT_NE(out.find("  context:      436MiB for each process, measured on this GPU\n"), out.npos) << out;
  EXPECT_NE(out.find("16GiB in all, 15GiB usable\n"), out.npos) << out;
  out = run({"show", "--json", "1"}).out;
  EXPECT_NE(out.find("\"context_bytes\": 457179136,\n        \"context_from\": \"measured\","), out.npos) << out;
  out = shown(2, {450 * kMiB, ContextSource::site});
  EXPECT_NE(out.find("  context:      450MiB for each process, set by the site\n"), out.npos) << out;
  out = shown(3, {});
  EXPECT_EQ(out.find("context:"), out.npos) << out;
}

TEST_F(Vgpuctl, SetsNoLimitBeyondWhatCanBeHad) {
  DeviceSpec device;
  device.identity = make_device(0).identity;
  device.memory_limit = kGiB;
  device.usable_bytes = 15 * kGiB;
  for (unsigned job : {1u, 2u}) {
    const RegionSpec spec = {job, 0, false, 1, &device};
    ASSERT_FALSE(Region::create(regions_.path().c_str(), std::to_string(job).c_str(), spec));
  }
  EXPECT_EQ(run({"set", "1", "--gpu-mem=50%"}).out, "job 1, GPU 0: 7.5GiB of memory, 100% of the SMs\n");
  const Result refused = run({"set", "2", "--gpu-mem=8G"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("8GiB do not fit beside the 7.5GiB of its 15GiB"), std::string::npos) << refused.err;
  EXPECT_EQ(run({"set", "2", "--gpu-mem=50%"}).status, 0);
  EXPECT_EQ(run({"set", "1", "--force", "--gpu-mem=16G"}).out, "job 1, GPU 0: 15GiB of memory, 100% of the SMs\n");
}

// It may be of a release that is not here any more, or yet.
TEST_F(Vgpuctl, SetsLimitsBesideARegionThatCannotBeRead) {
  create(1, 0, {kGiB});
  create(2, 0, {kGiB});
  std::ofstream(path("2") + "/limits", std::ios::trunc) << "garbage";
  const Result result = run({"set", "1", "--gpu-mem=2G"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("its limits are not counted"), std::string::npos) << result.err;
}

TEST_F(Vgpuctl, ListsEveryFormat) {
  prepare();
  const struct {
    const char *golden;
    Words words;
  } rows[] = {
      {"list.txt", {}},
      {"list.txt", {"list", "--no-color"}},
      {"list-bytes.txt", {"list", "--bytes"}},
      {"list-parsable.txt", {"list", "-P", "--bytes"}},
      {"list-bare.txt", {"-n"}},
      {"list-columns.txt", {"list", "-o", "jobid,uuid,Pci,numa,launches,uid,state"}},
      {"list-one-job.txt", {"list", "-j", "12"}},
      {"list-one-user.txt", {"list", "-u", "daemon"}},
      {"list-one-gpu.txt", {"list", "-i", "1"}},
      {"list-one-gpu.txt", {"list", "-i", "GPU-00000001"}},
      {"list.json", {"list", "--json"}},
  };
  for (const auto &row : rows) {
    const Result result = run(row.words);
    EXPECT_EQ(result.status, 0) << row.golden;
    EXPECT_EQ(result.err, "") << row.golden;
    expect_golden(row.golden, normal(result.out));
  }
}

TEST_F(Vgpuctl, ListsNothingWhereThereIsNothing) {
  Result result = run({});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.rfind("JOBID  USER", 0), 0u) << result.out;
  result = run({"list", "-j", "7"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "vgpu: job 7 has no region on this node\n");
}

TEST_F(Vgpuctl, WatchesUntilItIsStopped) {
  create(7, 0, {kGiB});
  Program program(scratch_.path(), {kVgpuctl, "list", "--watch=0.1", "-P", "-o", "jobid,state"});
  EXPECT_TRUE(eventually([&] {
    const std::string out = program.out();
    return out.find("7|idle") != out.rfind("7|idle");
  })) << program.out();
  EXPECT_NE(program.out().find("every 0.1s: vgpuctl list"), std::string::npos);
  EXPECT_EQ(program.out().find('\033'), std::string::npos) << "not a terminal";
}

// ---- SM-USED --------------------------------------------------------------------------------------------------------

class VgpuctlSm : public Vgpuctl {
 protected:
  void SetUp() override {
    Vgpuctl::SetUp();
    if (IsSkipped()) return;
    create(7, 0, {kGiB, kGiB}, 50);
    create(12, 0, {kGiB});
  }
  static constexpr std::size_t offset(std::size_t field) { return offsetof(UsageFile, devices) + field; }
  std::string used() const { return run({"list", "-n", "-P", "-o", "jobid,gpu,sm-used"}).out; }
};

TEST_F(VgpuctlSm, IsKnownWhereThereIsALimit) { EXPECT_EQ(used(), "7|0|0%\n7|1|0%\n12|0|-\n"); }

// A minute of the GPU for a job that has half of it: two minutes go by until the next launch.
TEST_F(VgpuctlSm, SpreadsALongKernelOverTheTimeThatItIsPaidFor) {
  const std::uint64_t minute = 60'000'000'000;
  poke(7, offset(offsetof(DeviceUsage, charged_ns)), minute);
  poke(7, offset(offsetof(DeviceUsage, tat)), monotonic_ns() + 2 * minute);
  EXPECT_EQ(used(), "7|0|50%\n7|1|0%\n12|0|-\n");
}

// A busy machine may let the limiter sleep for as long as a figure takes: then the next one is right.
TEST_F(VgpuctlSm, FollowsWhatIsLetThrough) {
  const pid_t limiter = spawn([&]() -> int {  // 4 of 10 ms
    for (const std::uint64_t start = monotonic_ns();; sleep_ms(1)) {
      const std::uint64_t periods = (monotonic_ns() - start) / 10'000'000;
      poke(7, offset(offsetof(DeviceUsage, charged_ns)), periods * 4'000'000);
    }
  });
  const auto is_near = [](double percent) { return percent > 20 && percent < 60; };
  std::string once, json, watched;
  EXPECT_TRUE(eventually([&] { return once = used(), is_near(std::atof(once.c_str() + 4)); })) << once;
  EXPECT_TRUE(eventually([&] {
    json = run({"list", "--json", "-j", "7", "-i", "0"}).out;
    const std::size_t at = json.find("\"sm_used_ratio\": ");
    return at != std::string::npos && is_near(100 * std::atof(json.c_str() + at + 17));
  })) << json;
  {
    Program watch(scratch_.path(), {kVgpuctl, "list", "--watch=0.3", "-nP", "-j7", "-i0", "-osm-used"});
    EXPECT_TRUE(eventually([&] {
      std::istringstream lines(watched = watch.out());
      int near = 0;
      for (std::string line; std::getline(lines, line);) near += is_near(std::atof(line.c_str()));
      return near >= 3;
    })) << watched;
  }
  kill(limiter, SIGKILL);
  wait_for(limiter);
}

TEST_F(VgpuctlSm, IsWaitedForOnlyWhereItIsShown) {
  // The quickest of many: who always waits is never quick, and who does not is so once, however busy the machine.
  const auto took_ms = [&](const Words &words) {
    double least = 1e9;
    for (int i = 0; i < 3 || (i < 100 && least >= 100); ++i) {
      const Stopwatch watch;
      EXPECT_EQ(run(words).status, 0);
      least = std::min(least, watch.wall_ms());
    }
    return least;
  };
  const Stopwatch watch;
  EXPECT_EQ(run({"list"}).status, 0);
  EXPECT_GE(watch.wall_ms(), 100);
  EXPECT_LT(took_ms({"list", "-j", "12"}), 100) << "has no SM limit";
  EXPECT_LT(took_ms({"list", "-o", "jobid"}), 100);
}

// ---- mistakes -------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, RefusesBadWords) {
  const struct {
    Words words;
    const char *says;
  } rows[] = {
      {{"list", "-o", "jobid,nonsense"}, "there is no column 'nonsense'; there are JOBID,USER,"},
      {{"list", "-o", "jobid,"}, "there is no column ''"},
      {{"nonsense"}, "see vgpuctl --help"},
      {{"--nonsense"}, "see vgpuctl --help"},
      {{"list", "--watch=0"}, "see vgpuctl --help"},
      {{"list", "--no-color=18446744073709551616"}, "see vgpuctl --help"},
      {{"list", "--bytes=2"}, "see vgpuctl --help"},
      {{"show"}, "JOB is required"},
      {{"set", "7"}, "no new limit is given; give --gpu-mem=SIZE or --gpu-sm=PERCENT"},
      {{"set", "7", "--gpu-mem=8X"}, "'X' is not a unit"},
      {{"set", "7", "--gpu-sm=0"}, "that is not within 1 to 100"},
      {{"gc", "--older-than", "soon"}, "see vgpuctl --help"},
      {{"check", "--pid", "-3"}, "see vgpuctl --help"},
      {{"top"}, "top needs a terminal; see vgpuctl list --watch"},
  };
  for (const auto &row : rows) {
    const Result result = run(row.words);
    EXPECT_EQ(result.status, 1) << row.words[0];
    EXPECT_NE(result.err.find(row.says), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

// Anybody can make it in /tmp before we do.
TEST_F(Vgpuctl, LooksIntoNobodyElsesPrivateDirectory) {
  const std::string parent = runtime_.path() + "/vgpu-0";
  for (int i = 0; i < 500; ++i) std::filesystem::create_directories(parent + "/" + std::to_string(i) + "-1");
  ASSERT_EQ(chown(parent.c_str(), 5, 5), 0);
  const Result result = run({"list"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::string findings = run({"check"}).out;
  EXPECT_NE(findings.find(parent + ": is uid 5's, not yours;"), std::string::npos) << findings;
  EXPECT_EQ(matches(findings, parent).size(), 1u) << findings;
}

// ---- show -----------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, ShowsOneJob) {
  prepare();
  for (const char *job : {"7", "12", "100"}) {
    const Result result = run({"show", job});
    EXPECT_EQ(result.status, 0);
    expect_golden(std::string("show-") + job + ".txt", without_padding(normal(result.out)));
  }
  expect_golden("show-7.json", normal(run({"show", "7", "--json"}).out));
  // The rank of job 30 is dead, and its number anybody's.
  EXPECT_NE(run({"show", "30"}).out.find(" no\n"), std::string::npos);
}

TEST_F(Vgpuctl, MarksWhatIsTorn) {
  prepare();
  const unsigned slot = ranks_[0]->slot();
  poke(7, slot_offset(2, slot) + offsetof(SlotInfo, seq), 1);                               // stopped while it wrote
  poke(7, lanes_offset(2, slot, 0) + sizeof(Lane) * static_cast<unsigned>(Kind::data), 0);  // does not add up any more
  const std::string out = without_padding(run({"show", "7"}).out);
  EXPECT_NE(out.find(std::to_string(ranks_[0]->pid()) + " 0 ? ? ? ? ? ? ? ? yes"), std::string::npos) << out;
  const std::string json = run({"show", "7", "--json"}).out;
  EXPECT_NE(json.find("\"data_bytes\": null"), std::string::npos);
  EXPECT_NE(json.find("\"peak_bytes\": null"), std::string::npos);
}

TEST_F(Vgpuctl, SaysWhyAJobHasNoRegion) {
  std::filesystem::create_directory(path("9"));
  std::ofstream(path("9") + "/error") << "this is why";
  const Result result = run({"show", "9"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "vgpu: job 9 has no region on this node\nvgpu: this is why\n");
  EXPECT_EQ(run({"list"}).status, 0);
}

TEST_F(Vgpuctl, ShowsOthersOnlyTheLimits) {
  prepare();
  // As nobody, who has no job here. The programs lie where he may not go, so he gets a copy.
  const std::string copy = scratch_.path() + "/vgpuctl";
  std::filesystem::copy_file(kVgpuctl, copy);
  chmod(copy.c_str(), 0755);
  const Words as_nobody = {"--reuid=65534", "--regid=65534", "--clear-groups", copy};
  const auto run_as_nobody = [&](const Words &more) {
    Words words = as_nobody;
    words.insert(words.end(), more.begin(), more.end());
    return run_program("/usr/bin/setpriv", words);
  };
  Result result = run_as_nobody({"list"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_golden("list-hidden.txt", result.out);
  result = run_as_nobody({"show", "7"});
  EXPECT_NE(result.out.find("its use can be seen by root and by root"), std::string::npos) << result.out;
  EXPECT_EQ(run_as_nobody({"set", "7", "--gpu-mem=1G"}).status, 1);
  result = run_as_nobody({"gc"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("cannot clean"), std::string::npos) << result.err;
}

// ---- metrics --------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, WritesMetrics) {
  prepare();
  const std::string file = scratch_.path() + "/vgpu.prom";
  const std::string jobs = scratch_.path() + "/jobs";
  std::filesystem::create_directory(jobs);
  std::ofstream(jobs + "/3") << "4711\n";
  EXPECT_EQ(run({"metrics", "--no-sm", "-o", file, "--job-files", jobs}).status, 0);
  expect_golden("metrics.prom", read_file(file));
  EXPECT_EQ(run({"metrics", "--no-sm"}).out, read_file(file));
  struct stat status;
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777u, 0644u);
  EXPECT_EQ(read_file(jobs + "/0"), "7\n12\n30\n100\n");
  EXPECT_EQ(read_file(jobs + "/1"), "7\n");
  EXPECT_EQ(read_file(jobs + "/3"), "") << "a GPU without jobs keeps an empty file";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(jobs), {}), 3) << "temporary files are left";

  EXPECT_EQ(run({"metrics", "-o", scratch_.path() + "/none/vgpu.prom"}).status, 1);
  if (!has_program("promtool")) GTEST_SKIP() << "promtool is missing; install prometheus";
  EXPECT_EQ(std::system(("promtool check metrics <" + file + " >/dev/null").c_str()), 0);
}

// ---- topo -----------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, DrawsTheNode) {
  prepare();
  expect_golden("topo.txt", run({"topo"}).out);
  const std::string svg = run({"topo", "--svg"}).out;
  expect_golden("topo.svg", svg);
}

// ---- top ------------------------------------------------------------------------------------------------------------

// In a terminal that is not there.
class VgpuctlTop : public Vgpuctl {
 protected:
  ~VgpuctlTop() override { tmux("kill-server"); }

  int tmux(const std::string &words) const {
    return std::system(("tmux -f /dev/null -S " + scratch_.path() + "/tmux " + words + " 2>/dev/null").c_str());
  }
  std::string screen() const {
    tmux("capture-pane -p >" + scratch_.path() + "/screen");
    return read_file(scratch_.path() + "/screen");
  }
  bool shows(const std::string &text) const {
    return eventually([&] { return screen().find(text) != std::string::npos; });
  }
};

TEST_F(VgpuctlTop, ShowsBarsAndQuits) {
  if (!has_program("tmux")) GTEST_SKIP() << "tmux is missing; install it";
  prepare();
  ASSERT_EQ(tmux("-u new-session -d -x 130 -y 24 '" + kVgpuctl + " top --no-sm -d 0.2; echo ended with $?; exec cat'"),
            0);
  EXPECT_TRUE(shows("4 jobs with GPU limits")) << screen();
  EXPECT_TRUE(shows("[|||                     ]    1088MiB / 8GiB")) << screen();
  EXPECT_TRUE(shows("[||||||||||||||||||||||||]       2GiB / 2GiB")) << screen();
  EXPECT_TRUE(shows("▂▂▂")) << "no history: " << screen();
  EXPECT_TRUE(shows("at-limit")) << screen();
  ranks_[2]->release(2 * kGiB);
  EXPECT_TRUE(shows("[                        ]         0B / 2GiB")) << "does not live: " << screen();
  tmux("resize-window -x 60 -y 6");
  EXPECT_TRUE(eventually([&] { return screen().find("2GiB / 2GiB") == std::string::npos; })) << screen();
  EXPECT_TRUE(shows("4 jobs with GPU limits")) << screen();
  tmux("send-keys q");
  EXPECT_TRUE(shows("ended with 0")) << screen();
}

// ---- the documents --------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, JsonFollowsItsSchema) {
  if (std::system("python3 -c 'import jsonschema' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-jsonschema is missing; install it";
  }
  prepare();
  std::ofstream(path("7") + "/../13") << "";
  for (const Words &words : {Words{"list", "--json"}, Words{"show", "7", "--json"}, Words{"show", "30", "--json"}}) {
    const std::string file = scratch_.path() + "/json";
    std::ofstream(file) << run(words).out;
    EXPECT_EQ(
        std::system(
            ("python3 -W ignore -m jsonschema -i " + file + " " VGPU_SOURCE_DIR "/docs/vgpuctl.schema.json").c_str()),
        0)
        << words[0];
  }
}

TEST_F(Vgpuctl, ManPageAndCompletionKnowEveryOption) {
  const std::string manual = replaced(read_file(VGPU_SOURCE_DIR "/utils/vgpuctl/vgpuctl.1"), "\\\\-", "-");
  const std::string completion = read_file(VGPU_SOURCE_DIR "/utils/vgpuctl/vgpuctl.bash");
  const std::string help = run({"--help"}).out;
  const Words commands = matches(help.substr(help.find("Subcommands:")), "\n  ([a-z]+) +[a-zA-Z]");
  for (const std::string &name : commands) {
    EXPECT_NE(manual.find(".SS " + name), std::string::npos) << name;
    for (const std::string &option : matches(run({name, "--help"}).out, "--[a-z-]+")) {
      EXPECT_NE(manual.find(option), std::string::npos) << name << " " << option;
      EXPECT_NE(completion.find(option), std::string::npos) << name << " " << option;
    }
  }
  EXPECT_EQ(commands.size(), 10u);
}

TEST_F(Vgpuctl, CompletesInBash) {
  create(7, 0, {kGiB});
  const auto complete = [&](const std::string &words, int at) {
    const std::string script = "PATH=" VGPU_BUILD_DIR "/utils/vgpuctl:$PATH; . " VGPU_SOURCE_DIR
                               "/utils/vgpuctl/vgpuctl.bash; COMP_WORDS=(" +
                               words + "); COMP_CWORD=" + std::to_string(at) + "; _vgpuctl; echo ${COMPREPLY[*]}";
    return run_program("/bin/bash", {"-c", script}).out;
  };
  EXPECT_EQ(complete("vgpuctl me", 1), "metrics\n");
  EXPECT_EQ(complete("vgpuctl gc --d", 2), "--dry-run\n");
  EXPECT_EQ(complete("vgpuctl show ''", 2), "7\n");
}

}  // namespace
}  // namespace vgpu::test
