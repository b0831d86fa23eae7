#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

namespace vgpu {

namespace {

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const char *usage) : usage_(usage) {}

  std::string make_usage(const CLI::App *app, std::string) const override {
    const CLI::App *program = app->get_parent();
    if (program == nullptr) return usage_;
    std::string usage = "usage: " + program->get_name() + ' ' + app->get_name();
    for (const CLI::Option *word : app->get_options([](const CLI::Option *each) { return each->get_positional(); })) {
      usage += ' ' + word->get_name();
    }
    return usage + " [OPTION...]\n";
  }

 private:
  const char *usage_;
};

// Without a description: the help says it in words.
template <typename Number>
CLI::Validator inside(NumberRange<Number> range) {
  return CLI::Range(range.lowest, range.highest).description("");
}

void set_help_flag(CLI::App *app) { app->set_help_flag("-h,--help", "print this help"); }

}  // namespace

void CommandOptions::add_flag(const char *names, bool *value, const char *help) {
  app_->add_flag(names, *value, help)->disable_flag_override();  // --flag=3 means nothing here
}

void CommandOptions::add_text(const char *names, std::string *value, const char *type, const char *help,
                              const char *environment) {
  CLI::Option *option = app_->add_option(names, *value, help)->type_name(type);
  if (environment != nullptr) option->envname(environment);
}

void CommandOptions::add_texts(const char *names, std::vector<std::string> *values, const char *type,
                               const char *help) {
  app_->add_option(names, *values, help)->type_name(type)->delimiter(',');
}

void CommandOptions::add_numbers(const char *names, std::vector<unsigned> *values, const char *type, const char *help) {
  app_->add_option(names, *values, help)->type_name(type)->delimiter(',')->allow_extra_args(false);
}

void CommandOptions::add_count(const char *names, std::uint64_t *value, const char *type, const char *help,
                               NumberRange<std::uint64_t> range) {
  app_->add_option(names, *value, help)->type_name(type)->check(inside(range));
}

void CommandOptions::add_seconds(const char *names, double *value, const char *type, const char *help,
                                 NumberRange<double> range, const char *when_bare) {
  CLI::Option *option = app_->add_option(names, *value, help)->type_name(type)->check(inside(range));
  if (when_bare != nullptr) option->expected(0, 1)->default_str(when_bare);
}

void CommandOptions::add_duration(const char *names, std::uint64_t *seconds, const char *type, const char *help) {
  const std::map<std::string, std::uint64_t> units{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  app_->add_option(names, *seconds, help)
      ->type_name(type)
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "").description(""));
}

void CommandOptions::add_word(const char *name, std::string *value, const char *help) {
  app_->add_option(name, *value, help)->type_name("")->required();
}

bool CommandOptions::was_given(const char *name) const { return app_->count(name) > 0; }

CommandLine::CommandLine(const Program &program) : app_(std::make_unique<CLI::App>(program.purpose, program.name)) {
  app_->formatter(std::make_shared<HelpFormatter>(program.usage));
  app_->get_formatter()->column_width(program.help_column);
  set_help_flag(app_.get());
  app_->set_version_flag("--version", program.version, "print the version");
  app_->footer(program.footer);
}

CommandLine::~CommandLine() = default;

CommandOptions CommandLine::options() { return CommandOptions(app_.get()); }

CommandOptions CommandLine::add_command(const char *name, const char *help, std::function<void()> chosen) {
  app_->require_subcommand(1);
  app_->fallthrough();
  CLI::App *command = app_->add_subcommand(name, help);
  command->footer("");
  command->formatter(app_->get_formatter());
  set_help_flag(command);
  command->callback(std::move(chosen));
  commands_.push_back(name);
  return CommandOptions(command);
}

bool CommandLine::has_command(const std::string &word) const {
  return std::find(commands_.begin(), commands_.end(), word) != commands_.end();
}

void CommandLine::allow_remaining() { app_->prefix_command(); }

std::optional<int> CommandLine::parse(std::vector<std::string> words, int (*complain)(const std::string &mistake)) {
  std::reverse(words.begin(), words.end());  // as CLI11 wants it
  try {
    app_->parse(std::move(words));
  } catch (const CLI::Success &asked) {
    return app_->exit(asked);
  } catch (const CLI::ParseError &mistake) {
    return complain(mistake.what());
  } catch (const std::exception &mistake) {  // of the library's own conversions
    return complain(std::string("a value cannot be read (") + mistake.what() + ")");
  }
  return {};
}

std::vector<std::string> CommandLine::remaining() const { return app_->remaining(); }

}  // namespace vgpu
