// What a bare CUDA context takes on each GPU, as root has measured it, and the file that keeps it over a reboot
// (/var/lib/slurm-vgpu/contexts, or state= in plugstack.conf).
//
//   vgpu-contexts 1
//   context uuid=GPU-... driver=580.95.05 bytes=457179136 usable=84557168640 block=2097152 measured=1794960000
//   end 1
//
// A figure holds for one GPU or MIG instance and one version of the driver. It is root's: nobody else's file is believed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "node.h"

namespace vgpu::node {

inline constexpr char kContextsFile[] = "/var/lib/slurm-vgpu/contexts";

struct KnownContext {
  std::string uuid;
  std::string driver;
  std::uint64_t bytes = 0;         // of a context with nothing in it
  std::uint64_t usable_bytes = 0;  // all that processes can have; 0: not known
  std::uint64_t block_bytes = 0;   // what the driver takes memory in; 0: not known
  std::int64_t measured = 0;       // seconds since the epoch

  bool operator==(const KnownContext &) const = default;
};

std::string format_contexts(const std::vector<KnownContext> &all);
// Believes nothing that was not checked. `where` is named in the error.
Error parse_contexts(const std::string &where, std::string_view text, std::vector<KnownContext> *all);

// In one step; makes the directory, if only that is missing.
Error write_contexts(const std::string &path, const std::vector<KnownContext> &all);
// Fault::not_found: nothing was measured yet.
Error read_contexts(const std::string &path, region::Trust trust, std::vector<KnownContext> *all);

// Null: nothing is known of that GPU under that driver.
const KnownContext *find_context(const std::vector<KnownContext> &all, std::string_view uuid, std::string_view driver);
// In the place of what is known of the same GPU, whatever the driver was.
void replace_context(const KnownContext &figure, std::vector<KnownContext> *all);

// Puts what is known into the node's devices.
void add_known_contexts(const std::vector<KnownContext> &all, Node *node);

}  // namespace vgpu::node
