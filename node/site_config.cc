#include "site_config.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "contexts_file.h"
#include "lists.h"
#include "record.h"
#include "text_lines.h"

namespace vgpu::node {

namespace {

using Setter = Error (*)(const char *key, std::string_view value, SiteConfig *config);

Error bad_value(const char *key, std::string_view value, const char *wanted) {
  return make_error(Fault::invalid, "plugstack.conf: %s=%.100s: that is not %s; see spank_vgpu(8)", key,
                    std::string(value).c_str(), wanted);
}

template <typename T>
struct Choice {
  std::string_view word;
  T value;
};

template <typename T, std::size_t n>
Error choose(const char *key, std::string_view value, const char *wanted, const Choice<T> (&choices)[n], T *result) {
  for (const Choice<T> &choice : choices) {
    if (choice.word == value) {
      *result = choice.value;
      return {};
    }
  }
  return bad_value(key, value, wanted);
}

Error set_flag(const char *key, std::string_view value, bool *flag) {
  return choose(key, value, "yes or no", {Choice<bool>{"yes", true}, Choice<bool>{"no", false}}, flag);
}

Error set_path(const char *key, std::string_view value, std::string *path) {
  if (value.size() < 2 || value.front() != '/' || value.size() > 200) {
    return bad_value(key, value, "an absolute path of at most 200 bytes");
  }
  *path = value;
  return {};
}

Error set_memory(const char *key, std::string_view value, std::optional<MemoryLimit> *limit) {
  MemoryLimit parsed;
  if (Error error = parse_memory(key, value, &parsed)) return error;
  *limit = parsed;
  return {};
}

Error set_size(const char *key, std::string_view value, std::uint64_t *bytes) { return parse_size(key, value, bytes); }

Error set_region_size(const char *key, std::string_view value, SiteConfig *config) {
  if (value == "off") {
    config->region_size = 0;
    return {};
  }
  return set_size(key, value, &config->region_size);
}

Error set_path_or_off(const char *key, std::string_view value, std::string *path) {
  if (value != "off") return set_path(key, value, path);
  path->clear();
  return {};
}

// "450M", "GPU-...:450M,GPU-...:300M", or both.
Error set_contexts(const char *key, std::string_view value, SiteConfig *config) {
  constexpr char kWanted[] = "a size, or GPU-...:SIZE with commas between them";
  SiteContexts contexts;
  const std::vector<std::string> items = split(value, ",");
  if (items.empty()) return bad_value(key, value, kWanted);
  for (const std::string &item : items) {
    const std::size_t colon = item.rfind(':');
    std::uint64_t bytes = 0;
    if (Error error = set_size(key, std::string_view(item).substr(colon == item.npos ? 0 : colon + 1), &bytes))
      return error;
    if (colon == item.npos) {
      contexts.everywhere = bytes;
    } else {
      const std::string uuid = item.substr(0, colon);
      if (!is_device_uuid(uuid) || !contexts.by_uuid.emplace(uuid, bytes).second) {
        return bad_value(key, value, kWanted);
      }
    }
  }
  config->context = std::move(contexts);
  return {};
}

Error set_sm(const char *key, std::string_view value, std::optional<std::uint32_t> *percent) {
  std::uint32_t parsed = 0;
  if (Error error = parse_sm(key, value, &parsed)) return error;
  *percent = parsed;
  return {};
}

// "1.5": one and a half times the device. In percent, so that sums stay whole numbers.
Error set_overcommit(const char *key, std::string_view value, SiteConfig *config) {
  double factor = 0;
  const char *end = value.data() + value.size();
  const auto [stopped, reason] = std::from_chars(value.data(), end, factor, std::chars_format::fixed);
  if (reason != std::errc() || stopped != end || !(factor >= 1) || factor > 100) {
    return bad_value(key, value, "a factor from 1 to 100, such as 1.5");
  }
  config->overcommit_percent = static_cast<std::uint64_t>(factor * 100 + 0.5);
  return {};
}

Error set_opt_out(const char *key, std::string_view value, SiteConfig *config) {
  Audience audience;
  audience.everybody = value == "everybody";
  if (value != "everybody" && value != "nobody") {
    for (const std::string &name : split(value, ",")) {
      if (name == "@") return bad_value(key, value, "everybody, nobody, or users and @groups with commas between them");
      (name.front() == '@' ? audience.groups : audience.users).push_back(name.front() == '@' ? name.substr(1) : name);
    }
    if (audience.users.empty() && audience.groups.empty()) {
      return bad_value(key, value, "everybody, nobody, or users and @groups with commas between them");
    }
  }
  config->opt_out = std::move(audience);
  return {};
}

struct Key {
  const char *name;
  Setter set;
};

constexpr Key kKeys[] = {
    {"region_dir", [](auto k, auto v, auto c) { return set_path(k, v, &c->region_dir); }},
    {"region_size", set_region_size},
    {"library", [](auto k, auto v, auto c) { return set_path(k, v, &c->library); }},
    {"nvml", [](auto k, auto v, auto c) { return set_path(k, v, &c->nvml); }},
    {"hwloc_xml", [](auto k, auto v, auto c) { return set_path(k, v, &c->hwloc_xml); }},
    {"probe", [](auto k, auto v, auto c) { return set_path(k, v, &c->probe); }},
    {"watch", [](auto k, auto v, auto c) { return set_path_or_off(k, v, &c->watch); }},
    {"gres_conf", [](auto k, auto v, auto c) { return set_path(k, v, &c->gres_conf); }},
    {"record", [](auto k, auto v, auto c) { return set_path_or_off(k, v, &c->record); }},
    {"state", [](auto k, auto v, auto c) { return set_path_or_off(k, v, &c->state); }},
    {"context", set_contexts},
    {"default_mem", [](auto k, auto v, auto c) { return set_memory(k, v, &c->default_mem); }},
    {"max_mem", [](auto k, auto v, auto c) { return set_memory(k, v, &c->max_mem); }},
    {"default_sm", [](auto k, auto v, auto c) { return set_sm(k, v, &c->default_sm); }},
    {"max_sm", [](auto k, auto v, auto c) { return parse_sm(k, v, &c->max_sm); }},
    {"shard_mem", [](auto k, auto v, auto c) { return set_size(k, v, &c->shard_mem); }},
    {"overcommit", set_overcommit},
    {"require_limits", [](auto k, auto v, auto c) { return set_flag(k, v, &c->require_limits); }},
    {"opt_out", set_opt_out},
    {"fail",
     [](auto k, auto v, auto c) {
       return choose(k, v, "open or closed", {Choice<bool>{"open", true}, Choice<bool>{"closed", false}},
                     &c->fail_open);
     }},
    {"sm",
     [](auto k, auto v, auto c) {
       return choose(k, v, "auto, option, live or mps",
                     {Choice<SmBy>{"auto", SmBy::automatic}, Choice<SmBy>{"option", SmBy::option},
                      Choice<SmBy>{"live", SmBy::live}, Choice<SmBy>{"mps", SmBy::mps}},
                     &c->sm);
     }},
    {"preload",
     [](auto k, auto v, auto c) {
       return choose(k, v, "env or ldso",
                     {Choice<PreloadBy>{"env", PreloadBy::env}, Choice<PreloadBy>{"ldso", PreloadBy::ldso}},
                     &c->preload);
     }},
    {"audit",
     [](auto k, auto v, auto c) {
       return choose(k, v, "off, log, notify or kill",
                     {Choice<Audit>{"off", Audit::off}, Choice<Audit>{"log", Audit::log},
                      Choice<Audit>{"notify", Audit::notify}, Choice<Audit>{"kill", Audit::kill}},
                     &c->audit);
     }},
    {"summary",
     [](auto k, auto v, auto c) {
       return choose(k, v, "never, used or always",
                     {Choice<Summary>{"never", Summary::never}, Choice<Summary>{"used", Summary::used},
                      Choice<Summary>{"always", Summary::always}},
                     &c->summary);
     }},
    {"log",
     [](auto k, auto v, auto c) {
       return choose(k, v, "error, info or debug",
                     {Choice<LogLevel>{"error", LogLevel::error}, Choice<LogLevel>{"info", LogLevel::info},
                      Choice<LogLevel>{"debug", LogLevel::debug}},
                     &c->log);
     }},
};

Error set_key(std::string_view argument, SiteConfig *config) {
  const std::size_t equals = argument.find('=');
  const std::string_view name = argument.substr(0, equals);
  for (const Key &key : kKeys) {
    if (name != key.name) continue;
    if (equals == argument.npos) return bad_value(key.name, "", "a value");
    return key.set(key.name, argument.substr(equals + 1), config);
  }
  return make_error(Fault::invalid, "plugstack.conf: '%.100s' is not a key that this plugin knows; see spank_vgpu(8)",
                    std::string(name).c_str());
}

}  // namespace

SiteConfig::SiteConfig()
    : library(VGPU_LIBRARY), watch(VGPU_WATCH_PROGRAM), record(kRecordFile), state(kContextsFile) {}

Error SiteConfig::parse(int argc, char **argv, SiteConfig *config) {
  SiteConfig parsed;
  for (int i = 0; i < argc; ++i) {
    if (Error error = set_key(argv[i], &parsed)) return error;
  }
  *config = std::move(parsed);
  return {};
}

void SiteContexts::add_to(std::vector<NodeDevice> *devices) const {
  for (NodeDevice &device : *devices) {
    const auto own = by_uuid.find(device.identity.uuid);
    const std::uint64_t bytes = own != by_uuid.end() ? own->second : everywhere;
    if (bytes != 0) device.context = {bytes, region::ContextSource::site};
  }
}

bool Audience::includes(uid_t uid) const {
  if (everybody) return true;
  if (users.empty() && groups.empty()) return false;
  const passwd *user = getpwuid(uid);
  for (const std::string &name : users) {
    if (name == std::to_string(uid) || (user != nullptr && name == user->pw_name)) return true;
  }
  if (user == nullptr || groups.empty()) return false;
  std::vector<gid_t> member(64);
  int count = static_cast<int>(member.size());
  while (getgrouplist(user->pw_name, user->pw_gid, member.data(), &count) < 0) {
    member.resize(static_cast<std::size_t>(count));
  }
  member.resize(static_cast<std::size_t>(count));
  for (const std::string &name : groups) {
    const group *wanted = getgrnam(name.c_str());
    if (wanted == nullptr) continue;
    const gid_t gid = wanted->gr_gid;
    for (const gid_t having : member) {
      if (having == gid) return true;
    }
  }
  return false;
}

}  // namespace vgpu::node
