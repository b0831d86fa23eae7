// Limits as people type them: every form that is read, and that everything else is refused with a sentence.
#include "node/values.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cstring>

namespace vgpu::node {
namespace {

constexpr std::uint64_t kKi = 1024, kMi = kKi * 1024, kGi = kMi * 1024, kTi = kGi * 1024;

TEST(Memory, ReadsSizes) {
  const struct {
    const char *text;
    std::uint64_t bytes;
  } rows[] = {
      {"8G", 8 * kGi},
      {"8g", 8 * kGi},
      {"8GB", 8 * kGi},
      {"8gb", 8 * kGi},
      {"8GiB", 8 * kGi},
      {"8gib", 8 * kGi},
      {"8GIB", 8 * kGi},
      {"512M", 512 * kMi},
      {"512mB", 512 * kMi},
      {"1024K", kMi},
      {"1024KiB", kMi},
      {"3T", 3 * kTi},
      {"3TiB", 3 * kTi},
      {"1.5G", kGi + kGi / 2},
      {"1.50G", kGi + kGi / 2},
      {"0.5K", 512},
      {"007G", 7 * kGi},
      {"1.000001K", 1024},  // whole bytes, rounded down
      {"0.333333G", 357913583},
      {"512B", 512},
      {"1000000b", 1000000},
      {"4294967295K", 4294967295 * kKi},
      {"3.999999T", 4398045411592},
  };
  for (const auto &row : rows) {
    MemoryLimit limit;
    const Error error = parse_memory("--gpu-mem", row.text, &limit);
    EXPECT_FALSE(error) << row.text << ": " << error.text;
    EXPECT_EQ(limit.bytes, row.bytes) << row.text;
    EXPECT_FALSE(limit.is_share()) << row.text;
  }
}

TEST(Memory, ReadsShares) {
  const struct {
    const char *text;
    std::uint64_t millionths;
  } rows[] = {{"50%", 50'000'000},
              {"100%", 100'000'000},
              {"12.5%", 12'500'000},
              {"0.000001%", 1},
              {"100.000000%", 100'000'000}};
  for (const auto &row : rows) {
    MemoryLimit limit;
    const Error error = parse_memory("--gpu-mem", row.text, &limit);
    EXPECT_FALSE(error) << row.text << ": " << error.text;
    EXPECT_TRUE(limit.is_share()) << row.text;
    EXPECT_EQ(limit.percent_millionths, row.millionths) << row.text;
  }
}

struct Bad {
  const char *text;
  const char *why;  // part of the sentence
};

constexpr Bad kBadMemory[] = {
    {"", "empty"},
    {"-8G", "negative"},
    {"-0G", "negative"},
    {"0G", "zero"},
    {"0", "unit is missing"},
    {"0.0G", "zero"},
    {"0%", "zero"},
    {"8", "unit is missing"},
    {"8192", "unit is missing"},
    {"1.5", "unit is missing"},
    {"G", "digit"},
    {"%", "digit"},
    {"+8G", "digit"},
    {".5G", "digit"},
    {"5.G", "behind the point"},
    {"5.%", "behind the point"},
    {"1..5G", "behind the point"},
    {"1.5.5G", "not a unit"},
    {"8GG", "not a unit"},
    {"8Gx", "not a unit"},
    {"8Gi", "not a unit"},
    {"8BiB", "not a unit"},
    {"8Q", "not a unit"},
    {"8P", "not a unit"},
    {"8G;reboot", "not a unit"},
    {"8%%", "not a unit"},
    {"8%G", "not a unit"},
    {"8G%", "not a unit"},
    {" 8G", "blanks"},
    {"8G ", "blanks"},
    {"8 G", "blanks"},
    {"8G\n", "blanks"},
    {"8\tG", "blanks"},
    {"inf", "digit"},
    {"nan", "digit"},
    {"infinityG", "digit"},
    {"0x10G", "not a unit"},
    {"1e3M", "not a unit"},
    {"1E3M", "not a unit"},
    {"1'000M", "not a unit"},
    {"1_000M", "not a unit"},
    {"8\xc4\x9e", "ASCII"},      // a capital G with breve
    {"\xef\xbc\x98G", "ASCII"},  // a full-width 8
    {"8\xc2\xa0G", "ASCII"},     // a blank that does not break
    {"\xd9\xa8G", "ASCII"},      // an Arabic-Indic 8
    {"\xff", "ASCII"},
    {"511B", "less than 512B"},
    {"0.1K", "less than 512B"},
    {"600.5B", "fractions of a byte"},
    {"4T", "4TiB and more"},
    {"4096G", "4TiB and more"},
    {"999999999999T", "4TiB and more"},      // 2^80 and more: overflows 64 bits
    {"18446744073709551616B", "too large"},  // 2^64
    {"18446744073709551617G", "too large"},
    {"99999999999999999999999999999999999999999999999999", "too large"},
    {"1.0000001G", "six decimals"},
    {"100.1%", "more than 100%"},
    {"101%", "more than 100%"},
    {"1000000%", "more than 100%"},
};

void expect_sentence(const Error &error, const Bad &row, const char *option, const char *example) {
  ASSERT_TRUE(error) << "accepted: '" << row.text << "'";
  EXPECT_EQ(error.fault, Fault::invalid);
  const std::string text = error.text;
  EXPECT_EQ(text.rfind(std::string(option) + "=", 0), 0u) << text;
  EXPECT_NE(text.find(row.why), std::string::npos) << "'" << row.text << "' gave: " << text;
  EXPECT_NE(text.find(example), std::string::npos) << text;
  for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << "not for a terminal: " << text;
}

TEST(Memory, RefusesEverythingElse) {
  for (const Bad &row : kBadMemory) {
    MemoryLimit limit = {77, 0};
    expect_sentence(parse_memory("--gpu-mem", row.text, &limit), row, "--gpu-mem", "8G, 1.5G or 512M");
    EXPECT_EQ(limit.bytes, 77u) << "changed by '" << row.text << "'";
    MemoryLimits limits;
    expect_sentence(parse_memory_list("--gpu-mem", row.text, &limits), row, "--gpu-mem", "8G, 1.5G or 512M");
    EXPECT_TRUE(limits.empty());
  }
}

TEST(Memory, RefusesZeroBytesInsideTheText) {
  MemoryLimit limit;
  EXPECT_TRUE(parse_memory("--gpu-mem", std::string_view("8G\0", 3), &limit));
  EXPECT_TRUE(parse_memory("--gpu-mem", std::string_view("8\0G", 3), &limit));
}

TEST(Memory, NamesWhatWasGiven) {
  MemoryLimits limits;
  const Error error = parse_memory_list("default_mem", "8Q", &limits);
  EXPECT_STREQ(error.text,
               "default_mem=8Q: 'Q' is not a unit; give a size like 8G, 1.5G or 512M, or a share of the GPU like 50%");
}

TEST(Memory, ALongValueDoesNotPushTheRemedyOut) {
  MemoryLimits limits;
  const Error error = parse_memory_list("--gpu-mem", std::string(5000, '7') + "G", &limits);
  EXPECT_NE(std::strstr(error.text, "8G, 1.5G or 512M"), nullptr) << error.text;
}

TEST(MemoryList, AValuePerGpu) {
  MemoryLimits limits;
  ASSERT_FALSE(parse_memory_list("--gpu-mem", "8G,50%,512M", &limits));
  const std::vector<MemoryLimit> expected = {{8 * kGi, 0}, {0, 50'000'000}, {512 * kMi, 0}};
  EXPECT_EQ(limits.values(), expected);
  EXPECT_FALSE(limits.check_gpus("--gpu-mem", 3));

  std::uint64_t bytes = 0;
  ASSERT_FALSE(limits.resolve("--gpu-mem", 0, 16 * kGi, &bytes));
  EXPECT_EQ(bytes, 8 * kGi);
  ASSERT_FALSE(limits.resolve("--gpu-mem", 1, 16 * kGi, &bytes));
  EXPECT_EQ(bytes, 8 * kGi);
  ASSERT_FALSE(limits.resolve("--gpu-mem", 2, 16 * kGi, &bytes));
  EXPECT_EQ(bytes, 512 * kMi);
  EXPECT_TRUE(limits.resolve("--gpu-mem", 3, 16 * kGi, &bytes));
}

TEST(MemoryList, OneValueIsForAll) {
  MemoryLimits limits;
  ASSERT_FALSE(parse_memory_list("--gpu-mem", "25%", &limits));
  for (unsigned gpus : {1u, 2u, 64u}) EXPECT_FALSE(limits.check_gpus("--gpu-mem", gpus));
  std::uint64_t bytes = 0;
  ASSERT_FALSE(limits.resolve("--gpu-mem", 7, 16 * kGi, &bytes));
  EXPECT_EQ(bytes, 4 * kGi);
}

TEST(MemoryList, AnotherNumberOfGpusIsRefused) {
  MemoryLimits limits;
  ASSERT_FALSE(parse_memory_list("--gpu-mem", "8G,4G", &limits));
  for (unsigned gpus : {0u, 1u, 3u}) {
    const Error error = limits.check_gpus("--gpu-mem", gpus);
    EXPECT_EQ(error.fault, Fault::invalid);
    EXPECT_NE(std::strstr(error.text, "2 values"), nullptr) << error.text;
  }
}

TEST(MemoryList, RefusesCommasWithNothingBesideThem) {
  for (const char *text : {",", "8G,", ",8G", "8G,,8G", "8G,8", "8G, 8G", "8G;8G"}) {
    MemoryLimits limits;
    EXPECT_EQ(parse_memory_list("--gpu-mem", text, &limits).fault, Fault::invalid) << text;
  }
}

TEST(MemoryList, HasRoomForARegionsDevices) {
  std::string text = "1G";
  for (int i = 1; i < 64; ++i) text += ",1G";
  MemoryLimits limits;
  EXPECT_FALSE(parse_memory_list("--gpu-mem", text, &limits));
  EXPECT_EQ(limits.values().size(), 64u);
  EXPECT_EQ(parse_memory_list("--gpu-mem", text + ",1G", &limits).fault, Fault::invalid);
}

TEST(MemoryList, AShareOfNothingIsRefused) {
  MemoryLimits limits;
  ASSERT_FALSE(parse_memory_list("--gpu-mem", "0.000001%", &limits));
  std::uint64_t bytes = 0;
  EXPECT_EQ(limits.resolve("--gpu-mem", 0, 0, &bytes).fault, Fault::invalid);
  EXPECT_EQ(limits.resolve("--gpu-mem", 0, kGi, &bytes).fault, Fault::invalid);  // 10 bytes
  EXPECT_FALSE(limits.resolve("--gpu-mem", 0, kTi, &bytes));
  EXPECT_EQ(bytes, 10995u);
}

TEST(Sm, ReadsPercentages) {
  const struct {
    const char *text;
    std::uint32_t percent;
  } rows[] = {{"1", 1}, {"50", 50}, {"50%", 50}, {"100", 100}, {"100%", 100}, {"099", 99}};
  for (const auto &row : rows) {
    std::uint32_t percent = 0;
    const Error error = parse_sm("--gpu-sm", row.text, &percent);
    EXPECT_FALSE(error) << row.text << ": " << error.text;
    EXPECT_EQ(percent, row.percent) << row.text;
  }
}

TEST(Sm, RefusesEverythingElse) {
  const Bad rows[] = {
      {"", "empty"},
      {"0", "1 to 100"},
      {"0%", "1 to 100"},
      {"101", "1 to 100"},
      {"-5", "negative"},
      {"+5", "digit"},
      {"%", "digit"},
      {"50.5", "whole"},
      {"50.0%", "whole"},
      {"50%%", "means nothing"},
      {"50x", "nothing"},
      {"0x32", "nothing"},
      {"5e1", "nothing"},
      {"50,50", "nothing"},
      {" 50", "blanks"},
      {"50 ", "blanks"},
      {"50 %", "blanks"},
      {"inf", "digit"},
      {"nan", "digit"},
      {"\xef\xbc\x95", "ASCII"},
      {"50\xef\xbc\x85", "ASCII"},
      {"4294967346", "1 to 100"},
      {"99999999999999999999", "too large"},
  };
  for (const Bad &row : rows) {
    std::uint32_t percent = 77;
    expect_sentence(parse_sm("--gpu-sm", row.text, &percent), row, "--gpu-sm", "from 1 to 100, like 50");
    EXPECT_EQ(percent, 77u) << "changed by '" << row.text << "'";
  }
}

TEST(Values, DoNotDependOnTheLocale) {
  // A comma for a point, if the machine has such a locale; else this only repeats what the others say.
  for (const char *name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) != nullptr) break;
  }
  MemoryLimit limit;
  EXPECT_FALSE(parse_memory("--gpu-mem", "1.5G", &limit));
  EXPECT_EQ(limit.bytes, kGi + kGi / 2);
  EXPECT_TRUE(parse_memory("--gpu-mem", "1,5G", &limit));
  EXPECT_EQ(format_bytes(kGi + kGi / 2), "1.5GiB");
  std::setlocale(LC_ALL, "C");
}

TEST(Format, ForPeople) {
  const struct {
    std::uint64_t bytes;
    const char *text;
  } rows[] = {
      {0, "0B"},
      {1, "1B"},
      {1023, "1023B"},
      {1024, "1KiB"},
      {512 * kMi, "512MiB"},
      {7 * kGi + kGi / 2, "7.5GiB"},
      {8 * kGi, "8GiB"},
      {kGi + kGi / 4, "1.25GiB"},
      {8000 * kMi, "8000MiB"},    // 7.8125 GiB
      {81559 * kMi, "81559MiB"},  // a real card
      {2 * kTi, "2TiB"},
      {3 * kGi + 512, "3GiB"},  // rounded
      {3 * kGi - 1, "3GiB"},
      {123456789, "117.74MiB"},
      {~std::uint64_t{0}, "16EiB"},
  };
  for (const auto &row : rows) EXPECT_EQ(format_bytes(row.bytes), row.text) << row.bytes;
}

TEST(Format, ReadsBackWhenItIsExact) {
  for (const char *text : {"512MiB", "7.5GiB", "8GiB", "1.25GiB", "8000MiB", "81559MiB", "512B", "2TiB"}) {
    MemoryLimit limit, again;
    ASSERT_FALSE(parse_memory("--gpu-mem", text, &limit));
    ASSERT_FALSE(parse_memory("--gpu-mem", format_bytes(limit.bytes), &again)) << text;
    EXPECT_EQ(format_memory(limit), text);
    EXPECT_EQ(limit, again) << text;
  }
  // Every whole number of MiB that a card may have.
  for (std::uint64_t mib = 1; mib < 100'000; ++mib) {
    MemoryLimit limit;
    ASSERT_FALSE(parse_memory("--gpu-mem", format_bytes(mib * kMi), &limit)) << mib;
    ASSERT_EQ(limit.bytes, mib * kMi) << format_bytes(mib * kMi);
  }
}

TEST(Format, Shares) {
  for (const char *text : {"50%", "100%", "12.5%", "0.000001%", "33.333333%"}) {
    MemoryLimit limit;
    ASSERT_FALSE(parse_memory("--gpu-mem", text, &limit));
    EXPECT_EQ(format_memory(limit), text);
  }
}

}  // namespace
}  // namespace vgpu::node
