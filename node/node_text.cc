// The text of the node file, written and read. See node.h.
#include <iterator>
#include <set>

#include "node.h"
#include "text_lines.h"

namespace vgpu::node {

namespace {

constexpr std::string_view kMagic = "vgpu-node ";
constexpr std::int64_t kMaxIndex = 1 << 20;  // Linux has no larger minor number

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::int64_t kMaxBytes = region::kMaxUnits * region::kUnitBytes;

// "0000:0b:00.0"; a domain may have up to eight digits.
bool is_pci_bus_id(std::string_view text) {
  const std::size_t domain = text.find(':');
  if (domain == std::string_view::npos || domain < 4 || domain > 8 || text.size() != domain + 8) return false;
  const std::string_view rest = text.substr(domain);
  return rest[3] == ':' && rest[6] == '.' && all_of(text.substr(0, domain), kHex) && all_of(rest.substr(1, 2), kHex) &&
         all_of(rest.substr(4, 2), kHex) && all_of(rest.substr(7, 1), "01234567");
}

bool is_path(std::string_view text) {
  if (text.empty() || text[0] != '/' || text.size() > 255) return false;
  for (const char c : text) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

// ---- one device -----------------------------------------------------------------------------------------------------

std::string known(const std::string &text) { return text.empty() ? "-" : text; }
std::string known(std::uint64_t bytes) { return bytes == 0 ? "-" : std::to_string(bytes); }
std::string known(int number) { return number < 0 ? "-" : std::to_string(number); }

bool set_number(std::string_view text, int *field) {
  if (text == "-") return true;
  const auto value = to_integer(text, 0, kMaxIndex);
  if (value) *field = static_cast<int>(*value);
  return value.has_value();
}

bool set_bytes(std::string_view text, std::uint64_t *field) {
  if (text == "-") return true;
  const auto bytes = to_integer(text, 1, kMaxBytes);
  if (bytes) *field = static_cast<std::uint64_t>(*bytes);
  return bytes.has_value();
}

constexpr TextField<NodeDevice> kFields[] = {
    {"gres", [](std::string_view text, NodeDevice *device) { return set_number(text, &device->gres_index); }},
    {"minor", [](std::string_view text, NodeDevice *device) { return set_number(text, &device->minor); }},
    {"file",
     [](std::string_view text, NodeDevice *device) {
       if (text == "-") return true;
       device->device_file = text;
       return is_path(text);
     }},
    {"gpu",
     [](std::string_view text, NodeDevice *device) {
       device->gpu_uuid = text;
       return is_uuid(text, "GPU-");
     }},
    {"uuid",
     [](std::string_view text, NodeDevice *device) {
       return (text == device->gpu_uuid || is_uuid(text, "MIG-")) && assign(device->identity.uuid, text);
     }},
    {"pci", [](std::string_view text,
               NodeDevice *device) { return is_pci_bus_id(text) && assign(device->identity.pci_bus_id, text); }},
    {"memory",
     [](std::string_view text, NodeDevice *device) {
       const auto bytes = to_integer(text, region::kUnitBytes, kMaxBytes);
       if (bytes) device->identity.memory_bytes = static_cast<std::uint64_t>(*bytes);
       return bytes.has_value();
     }},
    {"numa",
     [](std::string_view text, NodeDevice *device) {
       device->identity.numa_node = -1;
       return set_number(text, &device->identity.numa_node);
     }},
    {"cpus",
     [](std::string_view text, NodeDevice *device) {
       return text == "-" || (all_of(text, "0123456789,-") && assign(device->identity.cpuset, text));
     }},
    // From here on of the second version.
    {"context", [](std::string_view text, NodeDevice *device) { return set_bytes(text, &device->context.bytes); }},
    {"context-from",
     [](std::string_view text, NodeDevice *device) {
       for (const region::ContextSource source : {region::ContextSource::measured, region::ContextSource::site}) {
         if (text == name_of(source)) device->context.source = source;
       }
       const bool known = device->context.source != region::ContextSource::unknown;
       return known == (device->context.bytes != 0) && (known || text == "-");
     }},
    {"usable",
     [](std::string_view text, NodeDevice *device) {
       return set_bytes(text, &device->usable_bytes) && device->usable_bytes <= device->identity.memory_bytes;
     }},
    {"block", [](std::string_view text, NodeDevice *device) { return set_bytes(text, &device->block_bytes); }},
};
constexpr std::size_t kFieldsOfVersion1 = 9;

std::string format_device(const NodeDevice &device, unsigned version) {
  const region::DeviceIdentity &identity = device.identity;
  std::string text = "device gres=" + known(device.gres_index) + " minor=" + known(device.minor) +
                     " file=" + known(device.device_file) + " gpu=" + device.gpu_uuid + " uuid=" + identity.uuid +
                     " pci=" + identity.pci_bus_id + " memory=" + std::to_string(identity.memory_bytes) +
                     " numa=" + known(identity.numa_node) + " cpus=" + known(std::string(identity.cpuset));
  if (version > 1) {
    text += " context=" + known(device.context.bytes) + " context-from=" + name_of(device.context.source) +
            " usable=" + known(device.usable_bytes) + " block=" + known(device.block_bytes);
  }
  return text + "\n";
}

bool needs_version_2(const Node &node) {
  if (!node.driver.empty()) return true;
  for (const NodeDevice &device : node.devices) {
    if (device.context.bytes != 0 || device.usable_bytes != 0 || device.block_bytes != 0) return true;
  }
  return false;
}

// ---- the whole text -------------------------------------------------------------------------------------------------

constexpr char kRemedy[] = "remove it and restart slurmd, which writes it anew";

Error check_version(const std::string &where, Lines *lines, unsigned *found) {
  std::string_view line;
  if (!lines->next(&line) || !lines->take(kMagic, &line)) {
    return make_error(Fault::foreign, "%s is not a description of a node; %s", where.c_str(), kRemedy);
  }
  const auto version = to_integer(line, 1, 1'000'000);
  if (!version) return make_error(Fault::corrupt, "%s has no proper version; %s", where.c_str(), kRemedy);
  if (*version > kNodeVersion) {
    return make_error(Fault::newer, "%s has version %lld, this is version %u; update slurm-vgpu on this node",
                      where.c_str(), static_cast<long long>(*version), kNodeVersion);
  }
  *found = static_cast<unsigned>(*version);
  return {};
}

}  // namespace

bool is_driver_version(std::string_view text) {
  return !text.empty() && text.size() < 80 &&
         all_of(text, "0123456789.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-");
}

const char *name_of(region::ContextSource source) {
  if (source == region::ContextSource::measured) return "measured";
  return source == region::ContextSource::site ? "site" : "-";
}

std::string format_node(const Node &node) {
  const unsigned version = needs_version_2(node) ? kNodeVersion : 1;
  std::string text = std::string(kMagic) + std::to_string(version) + "\n";
  text += node.fail_open ? "on-error open\n" : "on-error closed\n";
  if (!node.driver.empty()) text += "driver " + node.driver + "\n";
  for (const NodeDevice &device : node.devices) text += format_device(device, version);
  for (const std::string &problem : node.problems) text += "problem " + problem + "\n";
  return text + "end " + std::to_string(node.devices.size()) + "\n";
}

Error parse_node(const std::string &where, std::string_view text, Node *node) {
  Lines lines(text);
  unsigned version = 0;
  if (Error error = check_version(where, &lines, &version)) return error;
  const std::size_t fields = version == 1 ? kFieldsOfVersion1 : std::size(kFields);
  const auto corrupt = [&](const std::string &why) {
    return make_error(Fault::corrupt, "%s, line %u: %s; %s", where.c_str(), lines.number(), why.c_str(), kRemedy);
  };
  const auto truncated = [&] {
    return make_error(Fault::truncated, "%s is cut off behind line %u; %s", where.c_str(), lines.number(), kRemedy);
  };

  Node made;
  std::string_view line;
  if (!lines.next(&line)) return truncated();
  if (line != "on-error open" && line != "on-error closed") return corrupt("neither 'on-error open' nor 'closed'");
  made.fail_open = line == "on-error open";

  std::set<std::string> uuids;
  std::set<int> gres_indices;
  while (lines.next(&line)) {
    if (lines.take("device ", &line)) {
      NodeDevice device;
      const std::string wrong = read_fields(line, kFields, fields, &device);
      if (!wrong.empty()) return corrupt("bad field: " + wrong);
      if (!uuids.insert(device.identity.uuid).second) return corrupt("the same UUID again");
      if (device.gres_index >= 0 && !gres_indices.insert(device.gres_index).second)
        return corrupt("the same gres again");
      if (made.devices.size() == region::kMaxDevices) return corrupt("more devices than a region can have");
      made.devices.push_back(std::move(device));
    } else if (version > 1 && made.driver.empty() && lines.take("driver ", &line)) {
      made.driver = line;
      if (!is_driver_version(line)) return corrupt("bad field: driver");
    } else if (lines.take("problem ", &line)) {
      made.problems.emplace_back(line);
    } else if (lines.take("end ", &line)) {
      if (to_integer(line, 0, region::kMaxDevices) != static_cast<std::int64_t>(made.devices.size())) {
        return corrupt("the number of devices is another");
      }
      if (!lines.empty()) return corrupt("text behind the end");
      *node = std::move(made);
      return {};
    } else {
      return corrupt("that is no line of such a file");
    }
  }
  return truncated();
}

}  // namespace vgpu::node
