// vgpuctl and regions that are not as they should be: a sentence, and never a crash.
//
// VGPU_STRESS_SECONDS says how long the random part runs. Its seed is printed; VGPU_FUZZ_SEED repeats one.
#include <random>

#include "region/files.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

class VgpuctlFuzz : public Vgpuctl {
 protected:
  std::string file(const char *name) const { return path("7") + "/" + name; }

  // Every command that reads regions, with a status that it documents.
  void expect_sane(const std::string &what) {
    for (const std::vector<std::string> &words : {std::vector<std::string>{"list"},
                                                  {"list", "--json"},
                                                  {"show", "7"},
                                                  {"show", "7", "--json"},
                                                  {"metrics", "--no-sm"}}) {
      const Result result = run(words);
      EXPECT_TRUE(result.status == 0 || result.status == 2 || result.status == 3)
          << what << ": " << words[0] << " ended with " << result.status << ": " << result.err;
      EXPECT_EQ(result.err.find("AddressSanitizer"), std::string::npos) << result.err;
      EXPECT_EQ(result.err.find("runtime error"), std::string::npos) << result.err;
      EXPECT_TRUE(result.status == 0 || result.err.rfind("vgpu: ", 0) == 0) << what << ": " << result.err;
    }
  }
};

TEST_F(VgpuctlFuzz, NamesWhatIsWrong) {
  const auto cut_off = [](const std::string &name, std::uintmax_t size) {
    return [=] { std::filesystem::resize_file(name, size); };
  };
  const auto replace = [](const std::string &name, std::function<void()> with) {
    return [=] {
      std::filesystem::remove(name);
      with();
    };
  };
  const auto write_at = [](const std::string &name, std::size_t offset, std::uint32_t value) {
    return [=] {
      const ScopedFd fd(open(name.c_str(), O_WRONLY | O_CLOEXEC));
      EXPECT_EQ(pwrite(fd.get(), &value, sizeof value, static_cast<off_t>(offset)), 4);
    };
  };
  const std::string limits = file("limits");
  const std::string usage = file("usage");
  const struct {
    const char *says;
    std::function<void()> harm;
  } rows[] = {
      {"bytes instead of", cut_off(usage, 5000)},
      {"is cut off within its header", cut_off(usage, 10)},
      {"bytes instead of", cut_off(limits, 200)},
      {"is not a slurm-vgpu file", write_at(usage, 0, 0)},
      {"has layout version 99, this is version", write_at(limits, offsetof(FileHeader, layout), 99)},
      {"has layout version 0, this is version", write_at(usage, offsetof(FileHeader, layout), 0)},
      {"its checksum is wrong", write_at(limits, offsetof(FileHeader, created), 1)},
      {"is a symbolic link", replace(usage, [=] { EXPECT_EQ(symlink("/etc/passwd", usage.c_str()), 0); })},
      {"is not a regular file", replace(usage, [=] { EXPECT_EQ(mkfifo(usage.c_str(), 0600), 0); })},
      {"belongs to uid 1", [=] { EXPECT_EQ(chown(usage.c_str(), 1, 1), 0); }},
      {"may be written by others", [=] { EXPECT_EQ(chmod(limits.c_str(), 0666), 0); }},
  };
  for (const auto &row : rows) {
    std::filesystem::remove_all(path("7"));
    create(7, 0, {kGiB, kGiB});
    row.harm();
    create(8, 0, {kGiB});
    const Result result = run({"list", "-P", "-o", "jobid"});
    // A user can spoil his job's `usage`, and is named; only what is wrong with root's own file is a failure.
    const bool failure = result.err.find("/limits") != std::string::npos;
    EXPECT_EQ(result.status, failure ? 3 : 0) << row.says;
    EXPECT_NE(result.err.find(row.says), std::string::npos) << row.says << " / " << result.err;
    EXPECT_EQ(result.out, failure ? "JOBID\n8\n" : "JOBID\n7\n7\n8\n") << "the others are shown";
    std::filesystem::remove_all(path("8"));
    EXPECT_EQ(run({"show", "7"}).status, failure ? 3 : 0);
    expect_sane(row.says);
  }
}

TEST_F(VgpuctlFuzz, SurvivesNoise) {
  const char *given = std::getenv("VGPU_FUZZ_SEED");
  const auto seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  const double end = now_ms() + 1000 * std::min(stress_seconds(), 10.0);
  unsigned rounds = 0;
  for (; now_ms() < end && !HasFailure(); ++rounds) {
    std::filesystem::remove_all(path("7"));
    create(7, 0, {8 * kGiB, 4 * kGiB}, 50);
    ranks_.clear();
    EXPECT_TRUE(add_rank(7).reserve(kGiB));
    ranks_.clear();
    const std::string name = file(below(4) == 0 ? "limits" : "usage");
    std::string content = read_file(name);
    for (std::size_t i = 1 + below(200); i > 0; --i) {
      // Some words are read more closely than others: owners, devices and the first slots.
      const std::size_t area = below(2) == 0 ? content.size() : std::min<std::size_t>(content.size(), 12'000);
      content[below(area)] = static_cast<char>(below(256));
    }
    if (below(8) == 0) content.resize(below(content.size()));
    // A valid header lets the noise behind it through.
    if (below(4) != 0 && content.size() > sizeof(LimitsFile)) {
      const std::string fresh = read_file(name);
      content.replace(0, sizeof(FileHeader), fresh, 0, sizeof(FileHeader));
      if (name == file("limits") && content.size() == fresh.size()) {
        auto &limits = *reinterpret_cast<LimitsFile *>(content.data());
        limits.header.checksum = limits_checksum(limits.header, limits.job, limits.devices);
      }
    }
    std::ofstream(name, std::ios::binary | std::ios::trunc) << content;
    expect_sane("seed " + std::to_string(seed) + ", round " + std::to_string(rounds));
  }
  EXPECT_GT(rounds, 0u);
}

// The owner of the usage file truncates and grows it without end while everybody reads.
TEST_F(VgpuctlFuzz, SurvivesAFileThatChangesUnderIt) {
  create(7, 0, {8 * kGiB});
  const std::string usage = file("usage");
  const pid_t vandal = spawn([&] {
    for (unsigned i = 0;; ++i) {
      if (truncate(usage.c_str(), i % 2 == 0 ? 9000 : static_cast<off_t>(usage_size(1))) != 0) return 1;
    }
  });
  for (int i = 0; i < 20; ++i) expect_sane("truncated all the time");
  // The file is root's business even then.
  for (int i = 0; i < 5; ++i) EXPECT_GE(run({"set", "7", "--gpu-mem=2G"}).status, 0);
  kill(vandal, SIGKILL);
  wait_for(vandal);
}

}  // namespace
}  // namespace vgpu::test
