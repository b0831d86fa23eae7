// The record of ended jobs: one line for each, and never too many.
#include "node/record.h"

#include <fstream>
#include <sstream>

#include "region/support.h"

namespace vgpu::test {

using namespace node;
using namespace region;
namespace {

class Record : public RegionTest {
 protected:
  std::string file() const { return directory_.path() + "/jobs.jsonl"; }
  static std::string read(const std::string &name) {
    std::ostringstream text;
    text << std::ifstream(name).rdbuf();
    return text.str();
  }
};

TEST_F(Record, SaysWhatTheJobUsed) {
  create(2, 64 * kMiB);
  {
    RankProcess rank(path());
    EXPECT_TRUE(rank.reserve(48 * kMiB, 1));
    EXPECT_FALSE(rank.reserve(48 * kMiB, 1));
  }
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  const std::string line = record_line(snapshot, History(2), "n\"1", 1'800'000'000);
  EXPECT_EQ(line, "{\"version\":1,\"job\":7,\"uid\":" + std::to_string(geteuid()) +
                      ",\"node\":\"n?1\",\"created\":" + std::to_string(snapshot.created()) +
                      ",\"ended\":1800000000,\"launches_hooked\":false,\"devices\":["
                      "{\"uuid\":\"GPU-00000000\",\"memory_limit_bytes\":67108864,\"sm_limit_percent\":100,"
                      "\"memory_peak_bytes\":0,\"refused\":0,\"launches\":null,\"throttled_seconds\":null,"
                      "\"memory_average_bytes\":null,\"sampled_seconds\":0,\"sm_average_percent\":null,"
                      "\"first_memory_limit_bytes\":67108864,\"highest_memory_limit_bytes\":67108864,"
                      "\"refused_since_change\":0},"
                      "{\"uuid\":\"GPU-00000001\",\"memory_limit_bytes\":67108864,\"sm_limit_percent\":100,"
                      "\"memory_peak_bytes\":50331648,\"refused\":1,\"launches\":null,\"throttled_seconds\":null,"
                      "\"memory_average_bytes\":null,\"sampled_seconds\":0,\"sm_average_percent\":null,"
                      "\"first_memory_limit_bytes\":67108864,\"highest_memory_limit_bytes\":67108864,"
                      "\"refused_since_change\":1}]}\n");
}

TEST_F(Record, SaysWhatWasSampledAndChanged) {
  create(1, 64 * kMiB);
  RankProcess rank(path());
  EXPECT_FALSE(rank.reserve(65 * kMiB));
  EXPECT_FALSE(rank.reserve(65 * kMiB));
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  History history(1);
  history.devices[0] = {90, 90.0 * 1000, 0, 32 * kMiB, 128 * kMiB, 100, 1};
  const std::string line = record_line(snapshot, history, "n1", snapshot.created() + 100);
  for (const char *expected :
       {"\"memory_average_bytes\":1000,\"sampled_seconds\":90,", "\"first_memory_limit_bytes\":33554432,",
        "\"highest_memory_limit_bytes\":134217728,", "\"refused\":2,", "\"refused_since_change\":1}"}) {
    EXPECT_NE(line.find(expected), std::string::npos) << expected << " in " << line;
  }
  history.devices[0].refused_before = 5;  // the user's own word went backwards
  EXPECT_NE(record_line(snapshot, history, "n1", snapshot.created()).find("\"refused_since_change\":0}"),
            std::string::npos);
}

// Launches are charged only while they are held to a share.
TEST_F(Record, KnowsTheShareOfTheTimeThatWasHeldToOne) {
  std::vector<DeviceSpec> devices = make_devices(1, 64 * kMiB);
  devices[0].sm_percent = 50;
  RegionSpec spec = make_spec(devices);
  spec.launch_hooks = true;
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "7", spec));
  attach(&region_);
  region_.usage().device(0).charged_ns.store(25'000'000'000);
  Snapshot snapshot;
  ASSERT_FALSE(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot));
  const auto average = [&](const History &history) {
    const std::string line = record_line(snapshot, history, "n1", snapshot.created() + 100);
    const std::size_t at = line.find("\"sm_average_percent\":") + 21;
    return line.substr(at, line.find(',', at) - at);
  };
  History history(1);
  EXPECT_EQ(average(history), "25.0");
  history.devices[0].first_limit = 64 * kMiB;
  history.devices[0].highest_sm = 80;
  EXPECT_EQ(average(history), "25.0");
  history.devices[0].highest_sm = 100;
  EXPECT_EQ(average(history), "null") << "some launches were not charged";
}

TEST_F(Record, IsAppendedToAndRotated) {
  const mode_t before = umask(077);
  for (const char *line : {"one\n", "two\n", "three\n"}) ASSERT_FALSE(append_record(file(), line, 8));
  umask(before);
  EXPECT_EQ(read(file() + ".1"), "one\ntwo\n");
  EXPECT_EQ(read(file()), "three\n");
  struct stat status;
  ASSERT_EQ(stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0644u);
}

TEST_F(Record, HasWholeLinesFromManyEpilogs) {
  const std::string line(200, 'x');
  std::vector<pid_t> writers;
  for (int i = 0; i < 16; ++i) {
    writers.push_back(spawn([&] {
      for (int k = 0; k < 20; ++k) {
        if (append_record(file(), line + "\n", 40'000)) return 1;
      }
      return 0;
    }));
  }
  for (const pid_t writer : writers) EXPECT_TRUE(exited_with(wait_for(writer), 0));
  std::istringstream lines(read(file() + ".1") + read(file()));
  int count = 0;
  for (std::string found; std::getline(lines, found); ++count) ASSERT_EQ(found, line);
  EXPECT_EQ(count, 16 * 20);
}

TEST_F(Record, IsNotKeptWhereThereIsNoDirectory) {
  EXPECT_EQ(append_record(directory_.path() + "/none/jobs.jsonl", "line\n").fault, Fault::not_found);
  ASSERT_EQ(symlink("elsewhere", file().c_str()), 0);
  EXPECT_EQ(append_record(file(), "line\n").fault, Fault::system) << "followed a link";
}

}  // namespace
}  // namespace vgpu::test
