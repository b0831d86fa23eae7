#include "devices.h"

#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>

#include "gres.h"
#include "log.h"
#include "node/contexts_file.h"
#include "node/inherited_files.h"
#include "node/measure.h"
#include "node/node_name.h"
#include "node/probe.h"

namespace vgpu::spank {

namespace {

constexpr unsigned kProbeDeadline_ms = 10'000;
// Somebody else's probe, and then our own.
constexpr unsigned kLockDeadline_ms = 2 * kProbeDeadline_ms;

node::ProbeOptions probe_options(const node::SiteConfig &config) {
  return {config.probe, config.nvml, config.hwloc_xml, kProbeDeadline_ms};
}

// A state file that cannot be read is no reason to know nothing of the GPUs: whoever measures says what is wrong with it.
void add_contexts(const node::SiteConfig &config, node::Node *node) {
  std::vector<node::KnownContext> known;
  if (!config.state.empty() && !read_contexts(config.state, region::Trust::root, &known)) {
    add_known_contexts(known, node);
  }
  config.context.add_to(&node->devices);
}

Error probe_and_write(const node::SiteConfig &config) {
  node::Node node;
  node.fail_open = config.fail_open;
  if (Error error = probe_devices(probe_options(config), &node)) return error;
  GresFiles gpus;
  if (Error error = read_gres_conf(config, node::node_name(), &gpus)) return error;
  number_devices(gpus, &node.devices);
  add_contexts(config, &node);
  return write_node(config.directory().node_file(), node);
}

// Prefers what somebody else has written while we waited for our turn.
Error read_or_probe(const node::SiteConfig &config, node::Node *node) {
  const std::string file = config.directory().node_file();
  Error error = read_node(file, region::Trust::root, node);
  if (error.fault != Fault::not_found) return error;
  node::DirectoryLock lock;
  if ((error = config.directory().lock_node(kLockDeadline_ms, &lock))) return error;
  error = read_node(file, region::Trust::root, node);
  if (error.fault != Fault::not_found) return error;
  log_info("there is no %s yet; asking NVML", file.c_str());
  if ((error = probe_and_write(config))) return error;
  return read_node(file, region::Trust::root, node);
}

}  // namespace

Error refresh_node(const node::SiteConfig &config) {
  node::DirectoryLock lock;
  if (Error error = config.directory().lock_node(kLockDeadline_ms, &lock)) return error;
  return probe_and_write(config);
}

void refresh_node_in_background(const node::SiteConfig &config) {
  const pid_t child = fork();
  if (child < 0) return;
  if (child > 0) {
    waitpid(child, nullptr, 0);
    return;
  }
  // Twice, so that slurmd never meets a child it does not know; and without slurmd's sockets and locks, which would
  // outlive it in here.
  if (setsid() < 0 || fork() != 0) _exit(0);
  node::close_inherited_files();
  openlog("spank_vgpu", LOG_PID, LOG_DAEMON);
  Error error = refresh_node(config);
  // Whoever needs a GPU now does not wait for this: the node file is there, and what is measured later is for later jobs.
  if (!error && !config.state.empty()) {
    error = measure_unknown(probe_options(config), config.directory(), config.state,
                            [](const std::string &sentence) { syslog(LOG_INFO, "%s", sentence.c_str()); });
  }
  if (error) syslog(LOG_ERR, "%s", error.text);
  _exit(0);
}

Error find_devices(const node::SiteConfig &config, const std::vector<unsigned> &gres_indices,
                   std::vector<node::NodeDevice> *devices) {
  node::Node node;
  if (Error error = read_or_probe(config, &node)) return error;
  std::vector<node::NodeDevice> found;
  for (const unsigned index : gres_indices) {
    const auto device = std::find_if(
        node.devices.begin(), node.devices.end(),
        [index](const node::NodeDevice &candidate) { return candidate.gres_index == static_cast<int>(index); });
    if (device == node.devices.end()) {
      return make_error(
          Fault::not_found,
          "GPU %u of this node: NVML shows none for it; compare gres.conf with %s, and restart slurmd%s%s", index,
          config.directory().node_file().c_str(), node.problems.empty() ? "" : ": ",
          node.problems.empty() ? "" : node.problems[0].c_str());
    }
    log_debug("GPU %u of this node is %s at %s", index, device->identity.uuid, device->identity.pci_bus_id);
    found.push_back(*device);
  }
  config.context.add_to(&found);  // as plugstack.conf says it today
  *devices = std::move(found);
  return {};
}

}  // namespace vgpu::spank
