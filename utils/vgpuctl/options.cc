#include "options.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <iostream>
#include <set>

#include "commands.h"
#include "node/install.h"
#include "node/print_error.h"
#include "node/record.h"
#include "status.h"

namespace vgpu::ctl {

namespace {

constexpr char kFooter[] =
    "Without a command, vgpuctl lists. `vgpuctl COMMAND --help` explains a command.\n"
    "\n"
    "Exit status: 0 success; 1 the request makes no sense, is not allowed or failed;\n"
    "2 no such job on this node; 3 a region is damaged or of another version;\n"
    "4 something is stale (check, gc --dry-run); 5 a process holds GPU memory that\n"
    "is counted nowhere (audit).";

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App *app, std::string name) const override {
    if (app->get_parent() == nullptr) return "usage: vgpuctl [COMMAND] [OPTION...]\n";
    const bool needs_job = app->get_option_no_throw("JOB") != nullptr;
    return "usage: vgpuctl " + name.substr(name.rfind(' ') + 1) + (needs_job ? " JOB" : "") + " [OPTION...]\n";
  }
};

// Limits as they were typed; they are parsed when CLI11 has found no mistake.
struct LimitTexts {
  std::string memory;
  std::string sm;
};

class Parser {
 public:
  explicit Parser(Options *options)
      : options_(*options), app_("Shows and changes the GPU limits of the jobs on this node.", "vgpuctl") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.get_formatter()->column_width(30);
    app_.set_help_flag("-h,--help", "print this help");
    app_.set_version_flag("--version", "vgpuctl (slurm-vgpu) " VGPU_VERSION, "print the version");
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.footer(kFooter);
    app_.add_option("--region-dir", options_.region_dir, "the directory of the regions (/run/vgpu)")
        ->type_name("DIR")
        ->envname("VGPU_REGION_DIR");
    app_.add_option("--nvml-library", options_.nvml, "the NVML library (libnvidia-ml.so.1)")->type_name("PATH");
    add_list();
    add_show();
    add_top();
    add_report();
    add_metrics();
    add_gc();
    add_set();
    add_check();
    add_topo();
    add_audit();
  }

  void parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // as CLI11 wants it
    app_.parse(std::move(words));
  }
  Error parse_limits() {
    if (!limit_texts_.memory.empty()) {
      if (Error error = parse_memory_list("--gpu-mem", limit_texts_.memory, &options_.memory.emplace())) return error;
    }
    if (!limit_texts_.sm.empty()) return node::parse_sm("--gpu-sm", limit_texts_.sm, &options_.sm_percent.emplace());
    return {};
  }
  CLI::App &app() { return app_; }
  bool knows(const std::string &word) { return commands_.contains(word); }

 private:
  CLI::App *add(const char *name, const char *help, Command command) {
    CLI::App *sub = app_.add_subcommand(name, help);
    commands_.insert(name);
    sub->footer("");
    sub->formatter(app_.get_formatter());
    sub->set_help_flag("-h,--help", "print this help");
    sub->callback([this, command] { options_.command = command; });
    return sub;
  }
  void add_job(CLI::App *sub) {
    sub->add_option("JOB", options_.job, "a job id, or the PID of a vgpu-run")->type_name("")->required();
  }
  void add_filters(CLI::App *sub) {
    sub->add_option("-j,--jobs", options_.jobs, "only these jobs")->type_name("JOB,...")->delimiter(',');
    sub->add_option("-u,--user", options_.users, "only jobs of these users")->type_name("USER,...")->delimiter(',');
    sub->add_option("-i,--gpu", options_.gpus, "only these GPUs: number, UUID or PCI bus id")
        ->type_name("GPU,...")
        ->delimiter(',');
  }
  void add_json(CLI::App *sub) { sub->add_flag("--json", options_.json, "print JSON; see docs/vgpuctl.schema.json"); }
  void add_bytes(CLI::App *sub) { sub->add_flag("--bytes", options_.bytes, "print sizes in bytes"); }
  void add_color(CLI::App *sub) { sub->add_flag("!--no-color", options_.color, "use no colours"); }

  void add_plugstack(CLI::App *sub) {
    sub->add_option("--plugstack", options_.plugstack, "the plugstack.conf to read")->type_name("FILE");
  }

  void add_list() {
    CLI::App *sub = add("list", "list jobs: one row for each job and GPU", list);
    add_filters(sub);
    sub->add_option("-o,--format", options_.columns, "print these columns")->type_name("COLUMN,...");
    sub->add_flag("!-n,!--noheader", options_.header, "print no header");
    sub->add_flag("-P,--parsable", options_.parsable, "put | between columns, without padding");
    add_json(sub);
    add_bytes(sub);
    sub->add_flag("--sm", ask_for_sm_, "ask NVML for SM-USED of all jobs");
    sub->add_option("--watch", options_.every_s, "repeat every SEC seconds (2)")
        ->type_name("SEC")
        ->expected(0, 1)
        ->default_str("2")
        ->check(CLI::Range(0.1, 86400.0).description(""));
    add_color(sub);
    sub->callback([this] {
      options_.command = list;
      options_.ask_nvml = ask_for_sm_;
    });
  }
  void add_show() {
    CLI::App *sub = add("show", "show one job: limits, GPUs and every process", show);
    add_job(sub);
    add_json(sub);
    add_bytes(sub);
    add_color(sub);
  }
  void add_top() {
    CLI::App *sub = add("top", "show a live view; q quits", top);
    add_filters(sub);
    options_.every_s = 0;
    sub->add_option("-d,--delay", delay_s_, "seconds between updates (1)")
        ->type_name("SEC")
        ->check(CLI::Range(0.1, 3600.0).description(""));
    sub->add_flag("!--no-sm", options_.ask_nvml, "do not ask NVML for SM-USED");
    add_color(sub);
    sub->callback([this] {
      options_.command = top;
      options_.every_s = delay_s_;
    });
  }
  void add_report() {
    CLI::App *sub = add("report", "show what an ended job has used", report);
    add_job(sub);
    sub->add_option("--record", options_.record, "the file to which the epilog writes ended jobs")->type_name("FILE");
    sub->add_flag("--json", options_.json, "print the job's line of that file");
  }
  void add_metrics() {
    CLI::App *sub = add("metrics", "print figures for Prometheus", metrics);
    sub->add_option("-o,--output", options_.output, "replace this file instead of printing")->type_name("FILE");
    sub->add_option("--job-files", options_.job_files, "also write the job files of dcgm-exporter")->type_name("DIR");
    sub->add_flag("!--no-sm", options_.ask_nvml, "do not ask NVML for SM-USED");
  }
  void add_gc() {
    CLI::App *sub = add("gc", "remove what ended jobs have left behind", gc);
    sub->add_flag("--dry-run", options_.dry_run, "only print what would be removed");
    sub->add_option("--older-than", options_.grace_s, "keep what is younger: 90s, 10m, 2h, 1d (10m)")
        ->type_name("TIME")
        ->transform(
            CLI::AsNumberWithUnit(std::map<std::string, std::uint64_t>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}},
                                  CLI::AsNumberWithUnit::CASE_SENSITIVE, "")
                .description(""));
  }
  void add_set() {
    CLI::App *sub = add("set", "change the limits of a running job; for root", set);
    add_job(sub);
    sub->add_option("--gpu-mem", limit_texts_.memory, "12G, 50%, or a list with a value for each GPU")
        ->type_name("SIZE");
    sub->add_option("--gpu-sm", limit_texts_.sm, "1 to 100")->type_name("PERCENT");
    sub->add_option("-i,--gpu", options_.gpus, "only on these GPUs")->type_name("GPU,...")->delimiter(',');
    add_plugstack(sub);
    sub->add_flag("--force", options_.force, "allow more than the GPU has room for");
  }
  void add_check() {
    CLI::App *sub = add("check", "check the installation on this node", check);
    sub->add_option("--pid", options_.pid, "also check that this process is limited")
        ->type_name("PID")
        ->check(CLI::PositiveNumber.description(""));
    sub->add_option("--library", options_.library, "the libvgpu.so to check")->type_name("PATH");
    sub->add_option("--plugin", options_.plugin, "the spank_vgpu.so to check")->type_name("PATH");
    add_plugstack(sub);
    add_color(sub);
  }
  void add_topo() {
    CLI::App *sub = add("topo", "show GPUs, NUMA nodes, cores, and the jobs on them", topo);
    sub->add_flag("--svg", options_.svg, "draw it as SVG");
    sub->add_option("--hwloc-xml", options_.hwloc_xml, "use a topology saved by lstopo")->type_name("FILE");
  }
  void add_audit() {
    CLI::App *sub = add("audit", "compare NVML's processes with the regions", audit);
    sub->add_flag("!-n,!--noheader", options_.header, "print no header");
    sub->add_flag("-P,--parsable", options_.parsable, "put | between columns, without padding");
    add_bytes(sub);
    add_color(sub);
  }

  Options &options_;
  CLI::App app_;
  LimitTexts limit_texts_;
  std::set<std::string> commands_;
  bool ask_for_sm_ = false;
  double delay_s_ = 1;
};

// The first word that is no option decides. Without one it is a list.
std::vector<std::string> with_command(int argc, char **argv, Parser *parser) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto is_about_us = [](const std::string &word) {
    return word == "-h" || word == "--help" || word == "--version";
  };
  if (!words.empty() && is_about_us(words[0])) return words;
  const bool has_command =
      std::any_of(words.begin(), words.end(), [&](const std::string &word) { return parser->knows(word); });
  if (!has_command && (words.empty() || words[0].rfind('-', 0) == 0)) words.insert(words.begin(), "list");
  return words;
}

int complain_about_usage(const std::string &sentence) {
  std::cerr << "vgpuctl: " << sentence << "; see vgpuctl --help\n";
  return kRefused;
}

}  // namespace

node::ProbeOptions Options::probe() const {
  constexpr unsigned kDeadline_ms = 5'000;
  return {node::find_probe(), nvml, hwloc_xml, kDeadline_ms};
}

std::optional<Options> parse_options(int argc, char **argv, int *status) {
  Options options;
  options.region_dir = region::kRegionDirectory;
  options.record = node::kRecordFile;
  options.grace_s = 600;
  Parser parser(&options);
  try {
    parser.parse(with_command(argc, argv, &parser));
  } catch (const CLI::Success &asked) {  // --help, --version
    parser.app().exit(asked);
    *status = kOk;
    return {};
  } catch (const CLI::ParseError &mistake) {
    *status = complain_about_usage(mistake.what());
    return {};
  }
  if (const Error error = parser.parse_limits()) {
    node::print_error("%s", error.text);
    *status = kRefused;
    return {};
  }
  return options;
}

}  // namespace vgpu::ctl
