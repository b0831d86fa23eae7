#include "measure.h"

#include <unistd.h>

#include "region_limits.h"
#include "values.h"

namespace vgpu::node {

namespace {

constexpr unsigned kMeasureDeadline_ms = 15'000;
constexpr unsigned kLockDeadline_ms = 20'000;  // somebody else's probe

// A region without processes may get some at any moment.
Error check_no_region(const RegionDirectory &directory, const NodeDevice &device) {
  if (access(directory.path().c_str(), F_OK) != 0) return {};
  std::vector<RegionLimits> regions;
  std::vector<Error> unreadable;
  if (Error error = list_region_limits(directory, &regions, &unreadable)) return error;
  if (!unreadable.empty()) return unreadable[0];
  for (const RegionLimits &region : regions) {
    for (const region::DeviceSpec &held : region.devices) {
      if (held.identity.uuid != std::string_view(device.identity.uuid) && held.identity.uuid != device.gpu_uuid)
        continue;
      return make_error(Fault::exists, "GPU %s: job %s has a region for it, so no context is measured there now",
                        device.identity.uuid, region.name.c_str());
    }
  }
  return {};
}

}  // namespace

Error measure_context(const ProbeOptions &options, const RegionDirectory &directory, const NodeDevice &device,
                      KnownContext *figure) {
  if (Error error = check_no_region(directory, device)) return error;
  ProbeOptions patient = options;
  patient.deadline_ms = kMeasureDeadline_ms;
  std::string answer;
  if (Error error = run_probe(patient, {"--measure", device.identity.uuid}, &answer)) return error;
  std::vector<KnownContext> found;
  if (parse_contexts("the probe", answer, &found) || found.size() != 1 || found[0].uuid != device.identity.uuid) {
    return make_error(Fault::foreign, "the probe does not measure as vgpu-probe does; install slurm-vgpu anew");
  }
  if (Error error = check_no_region(directory, device)) return error;
  *figure = std::move(found[0]);
  return {};
}

Error keep_context(const RegionDirectory &directory, const std::string &state, const KnownContext &figure) {
  const bool has_directory = access(directory.path().c_str(), F_OK) == 0;
  DirectoryLock lock;
  if (has_directory) {
    if (Error error = directory.lock_node(kLockDeadline_ms, &lock)) return error;
  }
  if (!state.empty()) {
    std::vector<KnownContext> all;
    if (Error error = read_contexts(state, region::Trust::root, &all); error && error.fault != Fault::not_found)
      return error;
    replace_context(figure, &all);
    if (Error error = write_contexts(state, all)) return error;
  }
  Node node;
  const Error no_node = has_directory ? read_node(directory.node_file(), region::Trust::root, &node) : Error();
  if (no_node) return no_node.fault == Fault::not_found ? Error() : no_node;
  if (node.driver.empty()) node.driver = figure.driver;  // a file of the first version
  if (!has_directory || node.driver != figure.driver) return {};
  const std::vector<NodeDevice> before = node.devices;
  add_known_contexts({figure}, &node);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].context.source == region::ContextSource::site) node.devices[i].context = before[i].context;
  }
  return write_node(directory.node_file(), node);
}

Error measure_unknown(const ProbeOptions &options, const RegionDirectory &directory, const std::string &state,
                      const std::function<void(const std::string &sentence)> &said) {
  Node node;
  if (Error error = read_node(directory.node_file(), region::Trust::root, &node)) return error;
  for (const NodeDevice &device : node.devices) {
    if (device.context.source != region::ContextSource::unknown) continue;
    KnownContext figure;
    Error error = measure_context(options, directory, device, &figure);
    if (!error) error = keep_context(directory, state, figure);
    said(error ? error.text
               : "GPU " + figure.uuid + ": a context takes " + format_bytes(figure.bytes) + " with driver " +
                     figure.driver);
  }
  return {};
}

}  // namespace vgpu::node
