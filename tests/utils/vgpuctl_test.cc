// vgpuctl: what it prints of prepared regions, and with which status it ends.
#include "vgpuctl_support.h"

namespace vgpu::test {
namespace {

using Words = std::vector<std::string>;

bool has_program(const std::string &name) { return std::system(("command -v " + name + " >/dev/null").c_str()) == 0; }

// ---- list -----------------------------------------------------------------------------------------------------------

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
      {{"show"}, "JOB is required"},
      {{"set", "7"}, "set what? give --gpu-mem=SIZE or --gpu-sm=PERCENT"},
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
  std::ofstream(path("9") + "/error") << "vgpu: this is why";
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

// ---- set ------------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, SetsLimitsWhileTheJobRuns) {
  prepare();
  RankProcess &rank = *ranks_[0];
  EXPECT_FALSE(rank.reserve(8 * kGiB));
  Result result = run({"set", "7", "--gpu-mem=12G,4G", "--gpu-sm=60"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out,
            "job 7, GPU 0: 12GiB of memory, 60% of the SMs\njob 7, GPU 1: 4GiB of memory, 60% of the SMs\n");
  EXPECT_TRUE(rank.reserve(8 * kGiB));
  result = run({"set", "7", "--gpu-mem=25%", "-i", "0"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("GPU 0: 4GiB of memory"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("GPU 1: 4GiB of memory"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("it keeps them, and gets nothing more"), std::string::npos) << result.err;
  EXPECT_FALSE(rank.reserve(kMiB));
}

TEST_F(Vgpuctl, RefusesLimitsThatDoNotFit) {
  prepare();
  const struct {
    Words words;
    const char *says;
  } rows[] = {
      {{"set", "7", "--gpu-mem=15G", "-i", "0"}, "do not fit beside the"},
      {{"set", "7", "--gpu-mem=17G", "-i", "0"}, "GPU 0 has no more than 16GiB"},
      {{"set", "7", "--gpu-mem=1G,2G,3G"}, "has 3 values, but there are 2 GPUs"},
      {{"set", "7", "--gpu-mem=1G", "-i", "5"}, "job 7 has no such GPU"},
      {{"set", "12", "--gpu-sm=50"}, "launches are not hooked"},
  };
  const std::string before = run({"list", "--json"}).out;
  for (const auto &row : rows) {
    const Result result = run(row.words);
    EXPECT_EQ(result.status, 1) << row.says;
    EXPECT_NE(result.err.find(row.says), std::string::npos) << result.err;
  }
  EXPECT_EQ(run({"set", "8", "--gpu-mem=1G"}).status, 2);
  EXPECT_EQ(run({"list", "--json"}).out, before);
  EXPECT_EQ(run({"set", "7", "--gpu-mem=15G", "-i", "0", "--force"}).status, 0);
}

// ---- gc -------------------------------------------------------------------------------------------------------------

class VgpuctlGc : public Vgpuctl {
 protected:
  // squeue as it is when slurmctld knows these jobs.
  void fake_squeue(const std::string &script) {
    const std::string folder = scratch_.path() + "/bin";
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/squeue") << "#!/bin/sh\n[ -z \"$SQUEUE_USERS\" ] || exit 9\n" << script << "\n";
    chmod((folder + "/squeue").c_str(), 0755);
    setenv("PATH", (folder + ":/usr/bin:/bin").c_str(), 1);
  }
  bool exists(const std::string &name) const { return std::filesystem::exists(path(name)); }
};

TEST_F(VgpuctlGc, RemovesWhatNobodyKnows) {
  prepare();
  fake_squeue("echo 100");
  std::filesystem::create_directory(path("55"));  // its prolog failed, its epilog never ran
  std::ofstream(path("55") + "/error") << "why";
  std::ofstream(path(".gpus-30")) << "0";
  std::ofstream(path(".gpus-100")) << "0";
  std::filesystem::create_directory(path(".new-0123"));
  std::ofstream(path(".new-0123") + "/limits") << "half";
  const Words now = {"gc", "--older-than", "0s"};

  setenv("SQUEUE_USERS", "somebody", 1);  // would hide jobs from us
  Result result = run({"gc", "--older-than=0s", "--dry-run"});
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_EQ(result.out.find("stale " + path("7") + "\n"), std::string::npos);
  EXPECT_NE(result.out.find("stale " + path("30") + "\n"), std::string::npos) << result.out;
  EXPECT_TRUE(exists("30"));

  EXPECT_EQ(run({"gc"}).out, "") << "younger than the grace";
  EXPECT_TRUE(exists("30"));

  result = run(now);
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char *gone : {"30", "55", ".gpus-30", ".new-0123"}) EXPECT_FALSE(exists(gone)) << gone;
  for (const char *kept : {"7", "12", "100", ".gpus-100", "node"}) EXPECT_TRUE(exists(kept)) << kept;
  EXPECT_EQ(run({"gc", "--older-than=0s", "--dry-run"}).status, 0);
  unsetenv("SQUEUE_USERS");
}

TEST_F(VgpuctlGc, RemovesNothingInDoubt) {
  prepare();
  for (const char *script : {"exit 1", "echo slurm_load_jobs error; exit 0", "kill -9 $$", "echo 30; echo x"}) {
    fake_squeue(script);
    const Result result = run({"gc", "--older-than=0s"});
    EXPECT_EQ(result.status == 0, false) << script;
    EXPECT_NE(result.err.find("nothing is removed"), std::string::npos) << result.err;
    EXPECT_TRUE(exists("30")) << script;
    EXPECT_TRUE(exists("100")) << script;
  }
  setenv("PATH", "/nowhere", 1);
  EXPECT_NE(run({"gc", "--older-than=0s"}).status, 0);
  EXPECT_TRUE(exists("30"));
  setenv("PATH", "/usr/bin:/bin", 1);
}

TEST_F(VgpuctlGc, LeavesWhatItCannotRead) {
  create(30, 0, {kGiB});
  fake_squeue("true");
  std::filesystem::resize_file(path("30") + "/usage", 100);
  const Result result = run({"gc", "--older-than=0s"});
  EXPECT_TRUE(exists("30"));
  EXPECT_NE(result.err.find("instead of"), std::string::npos) << result.err;
}

TEST_F(VgpuctlGc, FollowsNoLink) {
  fake_squeue("true");
  const std::string victim = scratch_.path() + "/victim";
  std::filesystem::create_directory(victim);
  std::ofstream(victim + "/limits") << "precious";
  std::filesystem::create_directory_symlink(victim, path("77"));
  std::filesystem::create_directory_symlink(victim, path(".old-77"));
  run({"gc", "--older-than=0s"});
  EXPECT_EQ(read_file(victim + "/limits"), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(path(".old-77")));
}

TEST_F(VgpuctlGc, GivesBackWhatDeadRanksHold) {
  prepare();
  fake_squeue("true");
  ranks_[1]->end(SIGKILL);
  const Result result = run({"gc"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "job 7: gave back what 1 of 1 dead processes held\n");
  EXPECT_NE(run({"list", "-nP", "-j7", "-i1", "-omem-used"}).out.find("0B"), std::string::npos);
}

// ---- report ---------------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, ReportsEndedJobs) {
  const std::string record = scratch_.path() + "/jobs.jsonl";
  std::filesystem::copy_file(VGPU_SOURCE_DIR "/tests/utils/golden/jobs.jsonl", record);
  for (const char *job : {"7", "8", "20", "21", "22"}) {
    const Result result = run({"report", job, "--record", record});
    EXPECT_EQ(result.status, 0) << result.err;
    expect_golden(std::string("report-") + job + ".txt", result.out);
  }
  EXPECT_EQ(run({"report", "8", "--json", "--record", record}).out.rfind("{\"version\":1,\"job\":8,", 0), 0u);
  Result result = run({"report", "9", "--record", record});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("job 9 is not in"), std::string::npos) << result.err;
  result = run({"report", "10", "--record", record});
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.err.find("is damaged or of another version"), std::string::npos) << result.err;
  result = run({"report", "7", "--record", scratch_.path() + "/none"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("there is no record of ended jobs"), std::string::npos) << result.err;
}

TEST_F(Vgpuctl, KeepsAHistoryForTheReport) {
  create(7, 0, {8 * kGiB, 4 * kGiB}, 50);
  EXPECT_TRUE(add_rank(7).reserve(kGiB));
  EXPECT_FALSE(ranks_.back()->reserve(8 * kGiB));
  sleep_ms(1100);  // a region knows its birth to the second
  EXPECT_EQ(run({"metrics", "--no-sm"}).status, 0);
  EXPECT_EQ(run({"set", "7", "-i", "0", "--gpu-mem=12G"}).status, 0);
  EXPECT_FALSE(ranks_.back()->reserve(16 * kGiB));
  History history;
  ASSERT_FALSE(read_history(path("7"), 2, &history));
  EXPECT_GT(history.devices[0].sampled_s, 1);
  EXPECT_NEAR(history.devices[0].byte_seconds / history.devices[0].sampled_s, static_cast<double>(kGiB), 1);
  EXPECT_EQ(history.devices[1].byte_seconds, 0);
  EXPECT_EQ(history.devices[0].first_limit, 8 * kGiB);
  EXPECT_EQ(history.devices[0].highest_limit, 12 * kGiB);
  EXPECT_EQ(history.devices[0].highest_sm, 50u);
  EXPECT_EQ(history.devices[0].refused_before, 1u);
  EXPECT_EQ(history.devices[1].first_limit, 0u) << "that one was not changed";
}

// ---- topo, check ----------------------------------------------------------------------------------------------------

TEST_F(Vgpuctl, DrawsTheNode) {
  prepare();
  expect_golden("topo.txt", run({"topo"}).out);
  const std::string svg = run({"topo", "--svg"}).out;
  expect_golden("topo.svg", svg);
}

TEST_F(Vgpuctl, ChecksTheNode) {
  if (!std::filesystem::exists(VGPU_BUILD_DIR "/libvgpu/libvgpu.so")) GTEST_SKIP() << "there is no library to look at";
  create(100, 0, {kGiB});
  const auto check = [&] {
    return run({"check", "--nvml-library", VGPU_BUILD_DIR "/tests/node/fake_nvml.so", "--library",
                VGPU_BUILD_DIR "/libvgpu/libvgpu.so", "--plugin", VGPU_BUILD_DIR "/spank/spank_vgpu.so"});
  };
  Result result = check();
  EXPECT_NE(result.out.find("regions: 1, none stale"), std::string::npos) << result.out;
  const bool on_tmpfs = regions_.path().rfind("/dev/shm/", 0) == 0;
  EXPECT_NE(result.out.find(on_tmpfs ? "root's, mode 0755, tmpfs" : "is not on a tmpfs"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("libvgpu.so: needs glibc 2."), std::string::npos) << result.out;
  chmod(regions_.path().c_str(), 0777);
  result = check();
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("with mode 0777; chown root and chmod 0755"), std::string::npos) << result.out;
  chmod(regions_.path().c_str(), 0755);
  EXPECT_TRUE(add_rank(100).reserve(kMiB));
  ranks_.back()->end(SIGKILL);
  result = check();
  EXPECT_NE(result.out.find("warn  job 100 of root: all of its processes are dead"), std::string::npos) << result.out;
  result = run({"check", "--pid", std::to_string(getpid())});
  EXPECT_NE(result.out.find("libvgpu.so is not loaded"), std::string::npos) << result.out;
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
  std::string manual = read_file(VGPU_SOURCE_DIR "/utils/vgpuctl/vgpuctl.1");
  manual = std::regex_replace(manual, std::regex("\\\\-"), "-");
  const std::string completion = read_file(VGPU_SOURCE_DIR "/utils/vgpuctl/vgpuctl.bash");
  const std::string help = run({"--help"}).out;
  unsigned commands = 0;
  const std::regex command("\n  ([a-z]+) +[a-zA-Z]");
  const std::string rest = help.substr(help.find("Subcommands:"));
  for (std::sregex_iterator at(rest.begin(), rest.end(), command), end; at != end; ++at, ++commands) {
    const std::string name = (*at)[1];
    EXPECT_NE(manual.find(".SS " + name), std::string::npos) << name;
    const std::string text = run({name, "--help"}).out;
    const std::regex option("--[a-z-]+");
    for (std::sregex_iterator word(text.begin(), text.end(), option); word != end; ++word) {
      EXPECT_NE(manual.find(word->str()), std::string::npos) << name << " " << word->str();
      EXPECT_NE(completion.find(word->str()), std::string::npos) << name << " " << word->str();
    }
  }
  EXPECT_EQ(commands, 10u);
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
