// The command line of a tool: what it understands, its help, its complaints.
//
// The compiler needs seconds to read CLI11: only command_line.cc includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vgpu {

template <typename Number>
struct NumberRange {
  Number lowest, highest;
};

// What a tool, or one of its commands, understands. `names` are as in "-n,--ranks". An option that is not given leaves its
// value as it is; `type` stands for the value in the help.
class CommandOptions {
 public:
  explicit CommandOptions(CLI::App *app) : app_(app) {}

  // A name with a "!" before it switches off.
  void add_flag(const char *names, bool *value, const char *help);
  void add_text(const char *names, std::string *value, const char *type, const char *help,
                const char *environment = nullptr);
  void add_texts(const char *names, std::vector<std::string> *values, const char *type, const char *help);
  void add_numbers(const char *names, std::vector<unsigned> *values, const char *type, const char *help);
  void add_count(const char *names, std::uint64_t *value, const char *type, const char *help,
                 NumberRange<std::uint64_t> range);
  // Without a value it is `when_bare`.
  void add_seconds(const char *names, double *value, const char *type, const char *help, NumberRange<double> range,
                   const char *when_bare = nullptr);
  // In seconds: 90s, 10m, 2h, 1d.
  void add_duration(const char *names, std::uint64_t *seconds, const char *type, const char *help);
  // A word that is no option, and must be there.
  void add_word(const char *name, std::string *value, const char *help);

  bool was_given(const char *name) const;

 private:
  CLI::App *app_;
};

class CommandLine {
 public:
  struct Program {
    const char *name;
    const char *version;
    const char *purpose;
    const char *usage;
    const char *footer;
    unsigned help_column;
  };
  explicit CommandLine(const Program &program);
  ~CommandLine();

  CommandOptions options();
  // One of these must be given; `chosen` is called then, after its options were set.
  CommandOptions add_command(const char *name, const char *help, std::function<void()> chosen);
  bool has_command(const std::string &word) const;
  // What is behind the options is somebody else's command line.
  void allow_remaining();

  // The words without the program's name. If the program is to end now, its exit status: 0 after --help or --version, what
  // `complain` returns after a mistake.
  std::optional<int> parse(std::vector<std::string> words, int (*complain)(const std::string &mistake));
  std::vector<std::string> remaining() const;

 private:
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> commands_;
};

}  // namespace vgpu
