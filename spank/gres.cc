#include "gres.h"

#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "node/lists.h"
#include "node/slurm_conf.h"
#include "node/small_files.h"
#include "slurm.h"

namespace vgpu::spank {

namespace {

constexpr std::size_t kMaxGresConf = 1 << 20;

// Slurm's own expansion of "n[1-4],m7" and "/dev/nvidia[0-3]". The type of a list differs between its versions.
std::vector<std::string> expand(const std::string &text) {
  std::vector<std::string> names;
  auto list = slurm_hostlist_create(text.c_str());
  if (!list) return names;
  while (char *name = slurm_hostlist_shift(list)) {
    names.emplace_back(name);
    std::free(name);
  }
  slurm_hostlist_destroy(list);
  return names;
}

std::string lower(std::string text) {
  for (char &c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::map<std::string, std::string> keys_of(std::string_view line) {
  std::map<std::string, std::string> keys;
  for (const std::string &word : node::split(line.substr(0, line.find('#')), " \t\r")) {
    const std::size_t equals = word.find('=');
    if (equals != word.npos) keys[lower(word.substr(0, equals))] = word.substr(equals + 1);
  }
  return keys;
}

std::vector<std::string> candidates(const node::SiteConfig &config) {
  if (!config.gres_conf.empty()) return {config.gres_conf};
  return node::slurm_conf_paths("gres.conf");
}

Error parse_gres_conf(const std::string &text, const std::string &node_name, GresFiles *gpus) {
  GresFiles found;
  for (const std::string &line : node::split(text, "\n")) {
    const std::map<std::string, std::string> keys = keys_of(line);
    const auto name = keys.find("name");
    if (name == keys.end() || strcasecmp(name->second.c_str(), "gpu") != 0) continue;
    if (const auto nodes = keys.find("nodename"); nodes != keys.end()) {
      const std::vector<std::string> names = expand(nodes->second);
      if (std::find(names.begin(), names.end(), node_name) == names.end()) continue;
    }
    if (const auto files = keys.find("multiplefiles"); files != keys.end()) {
      found.push_back(expand(files->second));
    } else if (const auto file = keys.find("file"); file != keys.end()) {
      for (std::string &each : expand(file->second)) found.push_back({std::move(each)});
    }
  }
  *gpus = std::move(found);
  return {};
}

int minor_of(const std::string &file) {
  struct stat status;
  if (stat(file.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return -1;
  return static_cast<int>(minor(status.st_rdev));
}

bool is_device(const std::vector<std::string> &files, const node::NodeDevice &device) {
  if (std::find(files.begin(), files.end(), device.device_file) != files.end()) return true;
  return !device.is_mig() && files.size() == 1 && device.minor >= 0 && minor_of(files[0]) == device.minor;
}

}  // namespace

Error read_gres_conf(const node::SiteConfig &config, const std::string &node_name, GresFiles *gpus) {
  for (const std::string &path : candidates(config)) {
    std::string text;
    if (Error error = node::read_file(path, kMaxGresConf, &text)) {
      if (error.fault == Fault::not_found && config.gres_conf.empty()) continue;
      return error;
    }
    return parse_gres_conf(text, node_name, gpus);
  }
  gpus->clear();
  return {};
}

void number_devices(const GresFiles &gpus, std::vector<node::NodeDevice> *devices) {
  for (node::NodeDevice &device : *devices) device.gres_index = -1;
  if (gpus.empty()) {
    std::stable_sort(devices->begin(), devices->end(), [](const node::NodeDevice &a, const node::NodeDevice &b) {
      return std::strcmp(a.identity.pci_bus_id, b.identity.pci_bus_id) < 0;
    });
    for (std::size_t i = 0; i < devices->size(); ++i) (*devices)[i].gres_index = static_cast<int>(i);
    return;
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (node::NodeDevice &device : *devices) {
      if (device.gres_index < 0 && is_device(gpus[i], device)) {
        device.gres_index = static_cast<int>(i);
        break;
      }
    }
  }
}

}  // namespace vgpu::spank
