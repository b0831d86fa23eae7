#include "options.h"

#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "node/install.h"
#include "node/print_error.h"
#include "node/record.h"
#include "status.h"
#include "utils/command_line/command_line.h"

namespace vgpu::ctl {

namespace {

constexpr char kFooter[] =
    "Without a command, vgpuctl lists. `vgpuctl COMMAND --help` explains a command.\n"
    "\n"
    "Exit status: 0 success; 1 the request makes no sense, is not allowed or failed;\n"
    "2 no such job on this node; 3 a region is damaged or of another version;\n"
    "4 something is stale (check, gc --dry-run); 5 a process holds GPU memory that\n"
    "is counted nowhere (audit).";

// Limits as they were typed; they are parsed when the command line is known to make sense.
struct LimitTexts {
  std::string memory;
  std::string sm;
};

class Parser {
 public:
  explicit Parser(Options *options)
      : options_(*options),
        line_({.name = "vgpuctl",
               .version = "vgpuctl (slurm-vgpu) " VGPU_VERSION,
               .purpose = "Shows and changes the GPU limits of the jobs on this node.",
               .usage = "usage: vgpuctl [COMMAND] [OPTION...]\n",
               .footer = kFooter,
               .help_column = 30}) {
    CommandOptions everywhere = line_.options();
    everywhere.add_text("--region-dir", &options_.region_dir, "DIR", "the directory of the regions (/run/vgpu)",
                        "VGPU_REGION_DIR");
    everywhere.add_text("--nvml-library", &options_.nvml, "PATH", "the NVML library (libnvidia-ml.so.1)");
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

  CommandLine &line() { return line_; }
  Error parse_limits() {
    if (!limit_texts_.memory.empty()) {
      if (Error error = parse_memory_list("--gpu-mem", limit_texts_.memory, &options_.memory.emplace())) return error;
    }
    if (!limit_texts_.sm.empty()) return node::parse_sm("--gpu-sm", limit_texts_.sm, &options_.sm_percent.emplace());
    return {};
  }

 private:
  CommandOptions add(const char *name, const char *help, Command command) {
    return line_.add_command(name, help, [this, command] { options_.command = command; });
  }
  void add_job(CommandOptions *command) {
    command->add_word("JOB", &options_.job, "a job id, or the PID of a vgpu-run");
  }
  void add_filters(CommandOptions *command) {
    command->add_texts("-j,--jobs", &options_.jobs, "JOB,...", "only these jobs");
    command->add_texts("-u,--user", &options_.users, "USER,...", "only jobs of these users");
    command->add_texts("-i,--gpu", &options_.gpus, "GPU,...", "only these GPUs: number, UUID or PCI bus id");
  }
  void add_json(CommandOptions *command) {
    command->add_flag("--json", &options_.json, "print JSON; see docs/vgpuctl.schema.json");
  }
  void add_bytes(CommandOptions *command) { command->add_flag("--bytes", &options_.bytes, "print sizes in bytes"); }
  void add_color(CommandOptions *command) { command->add_flag("!--no-color", &options_.color, "use no colours"); }
  void add_no_header(CommandOptions *command) {
    command->add_flag("!-n,!--noheader", &options_.header, "print no header");
  }
  void add_parsable(CommandOptions *command) {
    command->add_flag("-P,--parsable", &options_.parsable, "put | between columns, without padding");
  }
  void add_no_sm(CommandOptions *command) {
    command->add_flag("!--no-sm", &options_.ask_nvml, "do not ask NVML for SM-USED");
  }
  void add_plugstack(CommandOptions *command) {
    command->add_text("--plugstack", &options_.plugstack, "FILE", "the plugstack.conf to read");
  }

  void add_list() {
    CommandOptions command = line_.add_command("list", "list jobs: one row for each job and GPU", [this] {
      options_.command = list;
      options_.ask_nvml = ask_for_sm_;
    });
    add_filters(&command);
    command.add_text("-o,--format", &options_.columns, "COLUMN,...", "print these columns");
    add_no_header(&command);
    add_parsable(&command);
    add_json(&command);
    add_bytes(&command);
    command.add_flag("--sm", &ask_for_sm_, "ask NVML for SM-USED of all jobs");
    command.add_seconds("--watch", &options_.every_s, "SEC", "repeat every SEC seconds (2)", {0.1, 86400}, "2");
    add_color(&command);
  }
  void add_show() {
    CommandOptions command = add("show", "show one job: limits, GPUs and every process", show);
    add_job(&command);
    add_json(&command);
    add_bytes(&command);
    add_color(&command);
  }
  void add_top() {
    CommandOptions command = line_.add_command("top", "show a live view; q quits", [this] {
      options_.command = top;
      options_.every_s = delay_s_;
    });
    add_filters(&command);
    command.add_seconds("-d,--delay", &delay_s_, "SEC", "seconds between updates (1)", {0.1, 3600});
    add_no_sm(&command);
    add_color(&command);
  }
  void add_report() {
    CommandOptions command = add("report", "show what an ended job has used", report);
    add_job(&command);
    command.add_text("--record", &options_.record, "FILE", "the file to which the epilog writes ended jobs");
    command.add_flag("--json", &options_.json, "print the job's line of that file");
  }
  void add_metrics() {
    CommandOptions command = add("metrics", "print figures for Prometheus", metrics);
    command.add_text("-o,--output", &options_.output, "FILE", "replace this file instead of printing");
    command.add_text("--job-files", &options_.job_files, "DIR", "also write the job files of dcgm-exporter");
    add_no_sm(&command);
  }
  void add_gc() {
    CommandOptions command = add("gc", "remove what ended jobs have left behind", gc);
    command.add_flag("--dry-run", &options_.dry_run, "only print what would be removed");
    command.add_duration("--older-than", &options_.grace_s, "TIME", "keep what is younger: 90s, 10m, 2h, 1d (10m)");
  }
  void add_set() {
    CommandOptions command = add("set", "change the limits of a running job; for root", set);
    add_job(&command);
    command.add_text("--gpu-mem", &limit_texts_.memory, "SIZE", "12G, 50%, or a list with a value for each GPU");
    command.add_text("--gpu-sm", &limit_texts_.sm, "PERCENT", "1 to 100");
    command.add_texts("-i,--gpu", &options_.gpus, "GPU,...", "only on these GPUs");
    add_plugstack(&command);
    command.add_flag("--force", &options_.force, "allow more than the GPU has room for");
  }
  void add_check() {
    constexpr std::uint64_t kLargestPid = 1 << 22;  // of any Linux
    CommandOptions command = add("check", "check the installation on this node", check);
    command.add_count("--pid", &options_.pid, "PID", "also check that this process is limited", {1, kLargestPid});
    command.add_flag("--measure", &options_.measure, "measure what a CUDA context takes on each GPU; for root");
    command.add_text("--library", &options_.library, "PATH", "the libvgpu.so to check");
    command.add_text("--plugin", &options_.plugin, "PATH", "the spank_vgpu.so to check");
    add_plugstack(&command);
    add_color(&command);
  }
  void add_topo() {
    CommandOptions command = add("topo", "show GPUs, NUMA nodes, cores, and the jobs on them", topo);
    command.add_flag("--svg", &options_.svg, "draw it as SVG");
    command.add_text("--hwloc-xml", &options_.hwloc_xml, "FILE", "use a topology saved by lstopo");
  }
  void add_audit() {
    CommandOptions command = add("audit", "compare NVML's processes with the regions", audit);
    add_no_header(&command);
    add_parsable(&command);
    add_bytes(&command);
    add_color(&command);
  }

  Options &options_;
  CommandLine line_;
  LimitTexts limit_texts_;
  bool ask_for_sm_ = false;
  double delay_s_ = 1;
};

// The first word that is no option decides. Without one it is a list.
std::vector<std::string> with_command(int argc, char **argv, const CommandLine &line) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto is_about_us = [](const std::string &word) {
    return word == "-h" || word == "--help" || word == "--version";
  };
  if (!words.empty() && is_about_us(words[0])) return words;
  const bool has_command =
      std::any_of(words.begin(), words.end(), [&](const std::string &word) { return line.has_command(word); });
  if (!has_command && (words.empty() || words[0].rfind('-', 0) == 0)) words.insert(words.begin(), "list");
  return words;
}

int complain_about_usage(const std::string &sentence) {
  std::fprintf(stderr, "vgpuctl: %s; see vgpuctl --help\n", sentence.c_str());
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
  CommandLine &line = parser.line();
  if (const std::optional<int> end = line.parse(with_command(argc, argv, line), complain_about_usage)) {
    *status = *end;
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
