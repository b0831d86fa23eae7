// The part of vgpuctl check that knows what contexts take, or measures it.
#include <unistd.h>

#include "findings.h"
#include "node/contexts_file.h"
#include "node/measure.h"
#include "node/node.h"
#include "node/plugstack.h"
#include "node/values.h"

namespace vgpu::ctl {

namespace {

std::string name_of(const node::NodeDevice &device) {
  return device.gres_index >= 0 ? "GPU " + std::to_string(device.gres_index) : std::string(device.identity.uuid);
}

void measure(const Options &options, const std::string &state, const node::NodeDevice &device, Findings *findings) {
  node::KnownContext figure;
  Error error = measure_context(options.probe(), options.directory(), device, &figure);
  if (!error) error = keep_context(options.directory(), state, figure);
  if (error) {
    findings->warn(error);
    return;
  }
  std::string text = name_of(device) + ": a context takes " + node::format_bytes(figure.bytes);
  if (figure.usable_bytes != 0) text += ", " + node::format_bytes(figure.usable_bytes) + " can be had in all";
  if (figure.block_bytes != 0) text += ", in blocks of " + node::format_bytes(figure.block_bytes);
  text += "; measured with driver " + figure.driver;
  if (state.empty()) text += "; kept until slurmd starts again, because of state=off in plugstack.conf";
  if (device.context.source == region::ContextSource::site)
    text += "; jobs get " + node::format_bytes(device.context.bytes) + ", as the site says";
  findings->ok(text);
}

void check_known(const std::vector<node::NodeDevice> &devices, Findings *findings) {
  std::string unknown;
  for (const node::NodeDevice &device : devices) {
    if (device.context.source == region::ContextSource::unknown)
      unknown += (unknown.empty() ? "" : ", ") + name_of(device);
  }
  if (unknown.empty()) {
    findings->ok("contexts: known for all GPUs");
  } else {
    findings->warn("contexts: what one takes is not known for " + unknown +
                   "; run vgpuctl check --measure while nobody uses them, or set context= in plugstack.conf");
  }
}

}  // namespace

void check_contexts(const Options &options, Findings *findings) {
  node::Node node;
  if (read_node(options.directory().node_file(), region::Trust::root, &node)) return;  // has been said already
  node::Plugstack site;  // where it says nothing, the plugin's own defaults hold
  if (!node::read_plugstack(options.plugstack, &site) && !site.bad_keys) site.config.context.add_to(&node.devices);
  const std::string &state = site.config.state;
  std::vector<node::KnownContext> all;
  if (!state.empty()) {
    const Error error = read_contexts(state, region::Trust::root, &all);
    if (error && error.fault != Fault::not_found) findings->fail(error);
  }
  if (!options.measure) return check_known(node.devices, findings);
  if (geteuid() != 0) {
    findings->fail("--measure: only root can measure for all");
    return;
  }
  for (const node::NodeDevice &device : node.devices) measure(options, state, device, findings);
}

}  // namespace vgpu::ctl
