// The text of the node file, written and read. See node.h.
#include <charconv>
#include <optional>
#include <set>

#include "node.h"

namespace vgpu::node {

namespace {

constexpr std::string_view kMagic = "vgpu-node ";
constexpr std::int64_t kMaxIndex = 1 << 20;  // Linux has no larger minor number

bool all_of(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kWord = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/";

std::optional<std::int64_t> to_integer(std::string_view text, std::int64_t lowest, std::int64_t highest) {
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value < lowest || value > highest) return {};
  return value;
}

bool is_uuid(std::string_view text, std::string_view prefix) {
  return text.size() > prefix.size() && text.substr(0, prefix.size()) == prefix && all_of(text, kWord);
}

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
std::string known(int number) { return number < 0 ? "-" : std::to_string(number); }

bool set_number(std::string_view text, int *field) {
  if (text == "-") return true;
  const auto value = to_integer(text, 0, kMaxIndex);
  if (value) *field = static_cast<int>(*value);
  return value.has_value();
}

// Each reads one field and says whether it is well formed.
struct Field {
  std::string_view name;
  bool (*read)(std::string_view text, NodeDevice *device);
};

constexpr Field kFields[] = {
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
       const auto bytes = to_integer(text, region::kUnitBytes, region::kMaxUnits * region::kUnitBytes);
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
};

std::string format_device(const NodeDevice &device) {
  const region::DeviceIdentity &identity = device.identity;
  return "device gres=" + known(device.gres_index) + " minor=" + known(device.minor) +
         " file=" + known(device.device_file) + " gpu=" + device.gpu_uuid + " uuid=" + identity.uuid +
         " pci=" + identity.pci_bus_id + " memory=" + std::to_string(identity.memory_bytes) +
         " numa=" + known(identity.numa_node) + " cpus=" + known(std::string(identity.cpuset)) + "\n";
}

// All fields, in their order, and nothing else. Empty on success, else the field that is wrong.
std::string read_device(std::string_view line, NodeDevice *device) {
  for (const Field &field : kFields) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view item = line.substr(0, end);
    const std::string_view name = item.substr(0, item.find('='));
    if (name != field.name || name.size() == item.size()) return std::string(field.name);
    const std::string_view value = item.substr(name.size() + 1);
    if (value.empty() || !field.read(value, device)) return std::string(field.name);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return line.empty() ? "" : "text behind cpus";
}

// ---- the whole text -------------------------------------------------------------------------------------------------

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  // False at the end, and for a last line that is not ended.
  bool next(std::string_view *line) {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return false;
    *line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    ++number_;
    return true;
  }
  bool take(std::string_view prefix, std::string_view *line) {
    if (line->substr(0, prefix.size()) != prefix) return false;
    line->remove_prefix(prefix.size());
    return true;
  }
  bool empty() const { return rest_.empty(); }
  unsigned number() const { return number_; }

 private:
  std::string_view rest_;
  unsigned number_ = 0;
};

constexpr char kRemedy[] = "remove it and restart slurmd, which writes it anew";

Error check_version(const std::string &where, Lines *lines) {
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
  return {};
}

}  // namespace

std::string format_node(const Node &node) {
  std::string text = std::string(kMagic) + std::to_string(kNodeVersion) + "\n";
  text += node.fail_open ? "on-error open\n" : "on-error closed\n";
  for (const NodeDevice &device : node.devices) text += format_device(device);
  for (const std::string &problem : node.problems) text += "problem " + problem + "\n";
  return text + "end " + std::to_string(node.devices.size()) + "\n";
}

Error parse_node(const std::string &where, std::string_view text, Node *node) {
  Lines lines(text);
  if (Error error = check_version(where, &lines)) return error;
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
      if (const std::string wrong = read_device(line, &device); !wrong.empty()) return corrupt("bad field: " + wrong);
      if (!uuids.insert(device.identity.uuid).second) return corrupt("the same UUID again");
      if (device.gres_index >= 0 && !gres_indices.insert(device.gres_index).second)
        return corrupt("the same gres again");
      if (made.devices.size() == region::kMaxDevices) return corrupt("more devices than a region can have");
      made.devices.push_back(std::move(device));
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
