// The subcommands. Each returns the exit status; see status.h.
#pragma once

#include "options.h"

namespace vgpu::ctl {

int list(const Options &options);
int show(const Options &options);
int top(const Options &options);
int report(const Options &options);
int metrics(const Options &options);
int gc(const Options &options);
int set(const Options &options);
int check(const Options &options);
int topo(const Options &options);
int audit(const Options &options);

}  // namespace vgpu::ctl
