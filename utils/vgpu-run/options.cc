#include "options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "node/print_error.h"
#include "region/words.h"
#include "status.h"

namespace vgpu::run {

namespace {

constexpr char kFooter[] =
    "SIZE is a number with a unit (8G, 1.5G, 512M; powers of 1024), a part of the\n"
    "GPU (50%), or a list with commas and one value for each GPU. The default is the\n"
    "size of the GPU. The limits of a surrounding Slurm job stay as they are.\n"
    "\n"
    "The exit status is the largest of those of the ranks; a rank killed by signal N\n"
    "counts as 128+N. It is 127 or 126 if PROGRAM cannot be found or started, and 2\n"
    "if vgpu-run itself fails.";

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App *, std::string) const override {
    return "usage: vgpu-run [-n N] [--gpu-mem=SIZE] [--gpu-sm=PERCENT] [--gpus=LIST]\n"
           "                -- PROGRAM [ARG...]\n";
  }
};

int complain(const std::string &sentence) {
  std::cerr << sentence << '\n';
  return kOwnFailure;
}

// What the user gave behind our own options. A word that looks like an option and is none is a typing mistake.
std::string take_command(std::vector<std::string> rest, std::vector<std::string> *command) {
  if (!rest.empty() && rest[0] == "--") {
    rest.erase(rest.begin());
  } else if (!rest.empty() && rest[0].rfind('-', 0) == 0) {
    return "there is no option " + rest[0];
  }
  if (rest.empty()) return "the program to run is missing";
  *command = std::move(rest);
  return "";
}

}  // namespace

std::optional<Options> parse_options(int argc, char **argv, int *status) {
  Options options;
  std::string memory, sm;
  CLI::App app("Runs the ranks of a program under a common limit on GPU memory and GPU time.", "vgpu-run");
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(26);
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "vgpu-run (slurm-vgpu) " VGPU_VERSION, "print the version");
  app.add_option("-n,--ranks", options.ranks, "start N ranks (1)")
      ->type_name("N")
      ->check(CLI::Range(1u, region::kSlots - 1).description(""));
  const CLI::Option *has_memory =
      app.add_option("--gpu-mem", memory, "memory of all ranks together on each GPU")->type_name("SIZE");
  const CLI::Option *has_sm =
      app.add_option("--gpu-sm", sm, "share of each GPU's time, 1 to 100")->type_name("PERCENT");
  app.add_option("--gpus", options.gpus, "use only these GPUs, numbered as by nvidia-smi -L: 0,2")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--library", options.library, "preload this libvgpu.so")->type_name("PATH");
  app.prefix_command();
  app.footer(kFooter);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &asked) {  // --help, --version
    app.exit(asked);
    *status = 0;
    return {};
  } catch (const CLI::ParseError &mistake) {
    *status = complain(std::string("vgpu-run: ") + mistake.what() + "; see vgpu-run --help");
    return {};
  }

  if (const std::string why = take_command(app.remaining(), &options.command); !why.empty()) {
    *status = complain("vgpu-run: " + why + "; see vgpu-run --help");
    return {};
  }
  if (*has_memory) {
    if (const Error error = parse_memory_list("--gpu-mem", memory, &options.memory.emplace())) {
      node::print_error("%s", error.text);
      *status = kOwnFailure;
      return {};
    }
  }
  if (*has_sm) {
    if (const Error error = node::parse_sm("--gpu-sm", sm, &options.sm_percent.emplace())) {
      node::print_error("%s", error.text);
      *status = kOwnFailure;
      return {};
    }
  }
  return options;
}

}  // namespace vgpu::run
