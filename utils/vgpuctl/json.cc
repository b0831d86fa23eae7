#include "json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "node/node.h"
#include "node/used_memory.h"

namespace vgpu::ctl {

namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json known(const std::optional<T> &value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string &text) { return text.empty() ? Json(nullptr) : Json(text); }

Json device_json(const DeviceView &device) {
  return {
      {"gpu", device.gpu},
      {"uuid", device.uuid},
      {"pci_bus_id", text_or_null(device.pci)},
      {"numa_node", device.numa_node < 0 ? Json(nullptr) : Json(device.numa_node)},
      {"cpus", text_or_null(device.cpus)},
      {"device_memory_bytes", device.device_bytes == 0 ? Json(nullptr) : Json(device.device_bytes)},
      {"usable_memory_bytes", device.usable_bytes == 0 ? Json(nullptr) : Json(device.usable_bytes)},
      {"context_bytes", device.context.bytes == 0 ? Json(nullptr) : Json(device.context.bytes)},
      {"context_from", device.context.bytes == 0 ? Json(nullptr) : Json(node::name_of(device.context.source))},
      {"memory_limit_bytes", device.limit},
      {"memory_used_bytes", known(device.used)},
      {"memory_peak_bytes", known(device.peak)},
      {"sm_limit_percent", device.sm_percent},
      {"sm_used_ratio", known(device.sm_used)},
      {"processes", known(device.processes)},
      {"refused", known(device.refused)},
      {"launches", known(device.launches)},
      {"throttled_seconds", known(device.throttled_s)},
      {"state", name_of(device.state)},
  };
}

Json region_json(const RegionView &region) {
  Json devices = Json::array();
  for (const DeviceView &device : region.devices) devices.push_back(device_json(device));
  return {
      {"job", region.job},
      {"slurm", !region.is_private},
      {"user", region.user},
      {"uid", region.uid},
      {"created", region.created == 0 ? Json(nullptr) : Json(region.created)},
      {"launches_hooked", region.launch_hooks},
      {"state", name_of(region.state)},
      {"devices", std::move(devices)},
  };
}

Json memory_json(const RegionView &region, unsigned rank, unsigned dev) {
  constexpr const char *kKindNames[region::kKinds] = {"context", "module", "data", "other"};
  Json memory = {{"gpu", region.devices[dev].gpu}};
  for (unsigned kind = 0; kind < region::kKinds; ++kind) {
    memory[std::string(kKindNames[kind]) + "_bytes"] =
        region.devices[dev].ranks_add_up
            ? Json(node::used_memory(*region.snapshot, rank, dev, static_cast<region::Kind>(kind)))
            : Json();
  }
  return memory;
}

Json rank_json(const RegionView &region, unsigned index) {
  const region::RankSnapshot &rank = region.snapshot->rank(index);
  Json memory = Json::array();
  for (unsigned dev = 0; dev < region.devices.size(); ++dev) memory.push_back(memory_json(region, index, dev));
  const auto info = [&](std::uint64_t region::InfoValues::*field) {
    return rank.info_valid ? Json(rank.info.*field) : Json(nullptr);
  };
  const bool hooked = region.launch_hooks && rank.info_valid;
  return {
      {"slot", rank.slot},
      {"pid", rank.owner.pid},
      {"host_pid", rank.info_valid && rank.info.host_pid != 0 ? Json(rank.info.host_pid) : Json(nullptr)},
      {"alive", !is_ended(rank)},
      {"refused", info(&region::InfoValues::refused)},
      {"peak_bytes",
       rank.info_valid ? Json(region::bytes_of(rank.info.peak_units & region::kMaxUnits)) : Json(nullptr)},
      {"launches", hooked ? Json(rank.info.launches) : Json(nullptr)},
      {"throttled_seconds", hooked ? Json(static_cast<double>(rank.info.throttled_ns) / 1e9) : Json(nullptr)},
      {"memory", std::move(memory)},
  };
}

// Whatever is not UTF-8 in a name becomes U+FFFD: the output is always JSON.
std::string text_of(const Json &json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }

template <typename T>
std::optional<T> number_in(const Json &object, const char *name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? std::optional(found->get<T>()) : std::nullopt;
}

EndedDevice ended_device(const Json &json) {
  EndedDevice device{};
  device.uuid = json.at("uuid");
  device.limit = json.at("memory_limit_bytes");
  device.peak = json.at("memory_peak_bytes");
  device.refused = json.at("refused");
  device.first_limit = json.value("first_memory_limit_bytes", device.limit);
  device.highest_limit = std::max<std::uint64_t>(json.value("highest_memory_limit_bytes", device.limit), 1);
  device.refused_since = json.value("refused_since_change", device.refused);
  device.average = number_in<std::uint64_t>(json, "memory_average_bytes");
  if (device.average) device.sampled_s = json.at("sampled_seconds");
  device.sm_percent = json.at("sm_limit_percent");
  device.sm_average = number_in<double>(json, "sm_average_percent");
  if (json.at("throttled_seconds").is_number()) {
    device.throttled_s = json["throttled_seconds"].get<double>();
    device.launches = json.at("launches");
  }
  return device;
}

}  // namespace

std::string list_json(const NodeView &view) {
  Json regions = Json::array();
  for (const RegionView &region : view.regions) regions.push_back(region_json(region));
  Json troubles = Json::array();
  for (const Trouble &trouble : view.troubles) {
    troubles.push_back({{"job", trouble.job}, {"error", trouble.error.text}});
  }
  for (const RegionView &region : view.regions) {
    if (region.damage) troubles.push_back({{"job", region.job}, {"error", region.damage.text}});
  }
  return text_of(
      {{"version", 1}, {"hostname", view.host}, {"regions", std::move(regions)}, {"unreadable", std::move(troubles)}});
}

std::string show_json(const std::string &host, const RegionView &region) {
  Json shown = region_json(region);
  shown["ranks"] = nullptr;
  if (region.snapshot) {
    shown["ranks"] = Json::array();
    for (unsigned i = 0; i < region.snapshot->ranks(); ++i) shown["ranks"].push_back(rank_json(region, i));
  }
  return text_of({{"version", 1}, {"hostname", host}, {"region", std::move(shown)}});
}

std::optional<std::uint64_t> recorded_job(const std::string &line) {
  const Json record = Json::parse(line, nullptr, false);
  if (!record.is_object()) return {};
  const auto job = record.find("job");
  return job != record.end() && job->is_number_unsigned() ? std::optional(job->get<std::uint64_t>()) : std::nullopt;
}

std::optional<EndedJob> parse_record(const std::string &line) {
  try {
    const Json record = Json::parse(line);
    EndedJob ended{record.at("job"), record.at("node"), record.at("uid"), record.at("created"), record.at("ended"), {}};
    for (const Json &device : record.at("devices")) ended.devices.push_back(ended_device(device));
    return ended;
  } catch (const Json::exception &) {
    return {};
  }
}

}  // namespace vgpu::ctl
