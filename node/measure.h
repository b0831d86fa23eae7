// Measuring what a context takes on the GPUs of this node: by vgpu-probe --measure, in a process of its own with a deadline.
// For slurmd's start in the background and for `vgpuctl check --measure`; never for a prolog or a step, which would have to
// wait for it. It needs a GPU that nobody uses: who finds none tries again at the next start.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "contexts_file.h"
#include "directory.h"
#include "node.h"
#include "probe.h"

namespace vgpu::node {

// Nothing is kept. Before and after, no process may be on the GPU and no job have a region for it: else an error says who.
Error measure_context(const ProbeOptions &options, const RegionDirectory &directory, const NodeDevice &device,
                      KnownContext *figure);

// Puts a figure into the state file (empty path: nowhere) and into the node file, if there is one. What the site says of a
// context stays. One at a time on a node.
Error keep_context(const RegionDirectory &directory, const std::string &state, const KnownContext &figure);

// All devices of the node file of which nothing is known, one after the other; `said` gets a sentence for each.
Error measure_unknown(const ProbeOptions &options, const RegionDirectory &directory, const std::string &state,
                      const std::function<void(const std::string &sentence)> &said);

}  // namespace vgpu::node
