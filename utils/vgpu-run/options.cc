#include "options.h"

#include <cstdio>

#include "node/print_error.h"
#include "region/words.h"
#include "status.h"
#include "utils/command_line/command_line.h"

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

constexpr char kUsage[] =
    "usage: vgpu-run [-n N] [--gpu-mem=SIZE] [--gpu-sm=PERCENT] [--gpus=LIST]\n"
    "                [--context=SIZE] -- PROGRAM [ARG...]\n";

int complain(const std::string &sentence) {
  std::fprintf(stderr, "vgpu-run: %s; see vgpu-run --help\n", sentence.c_str());
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
  std::string memory, sm, context;
  CommandLine line({.name = "vgpu-run",
                    .version = "vgpu-run (slurm-vgpu) " VGPU_VERSION,
                    .purpose = "Runs the ranks of a program under a common limit on GPU memory and GPU time.",
                    .usage = kUsage,
                    .footer = kFooter,
                    .help_column = 26});
  CommandOptions known = line.options();
  known.add_count("-n,--ranks", &options.ranks, "N", "start N ranks (1)", {1, region::kSlots - 1});
  known.add_text("--gpu-mem", &memory, "SIZE", "memory of all ranks together on each GPU");
  known.add_text("--gpu-sm", &sm, "PERCENT", "share of each GPU's time, 1 to 100");
  known.add_numbers("--gpus", &options.gpus, "LIST", "use only these GPUs, numbered as by nvidia-smi -L: 0,2");
  known.add_text("--context", &context, "SIZE", "what a CUDA context takes, if it is not known");
  known.add_text("--library", &options.library, "PATH", "preload this libvgpu.so");
  line.allow_remaining();

  if (const std::optional<int> end = line.parse({argv + 1, argv + argc}, complain)) {
    *status = *end;
    return {};
  }

  if (const std::string why = take_command(line.remaining(), &options.command); !why.empty()) {
    *status = complain(why);
    return {};
  }
  if (known.was_given("--gpu-mem")) {
    if (const Error error = parse_memory_list("--gpu-mem", memory, &options.memory.emplace())) {
      node::print_error("%s", error.text);
      *status = kOwnFailure;
      return {};
    }
  }
  if (known.was_given("--gpu-sm")) {
    if (const Error error = node::parse_sm("--gpu-sm", sm, &options.sm_percent.emplace())) {
      node::print_error("%s", error.text);
      *status = kOwnFailure;
      return {};
    }
  }
  if (known.was_given("--context")) {
    if (const Error error = node::parse_size("--context", context, &options.context)) {
      node::print_error("%s", error.text);
      *status = kOwnFailure;
      return {};
    }
  }
  return options;
}

}  // namespace vgpu::run
