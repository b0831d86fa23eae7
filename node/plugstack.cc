#include "plugstack.h"

#include <glob.h>
#include <strings.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "lists.h"
#include "slurm_conf.h"

namespace vgpu::node {

namespace {

using Strings = std::vector<std::string>;

constexpr char kPluginName[] = "spank_vgpu.so";
constexpr unsigned kDeepest = 16;  // files that include each other

std::string directory_of(const std::string &path) { return path.substr(0, path.rfind('/') + 1); }

Strings matching(const std::string &pattern) {
  Strings paths;
  glob_t found;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

struct Line {
  std::string where;  // FILE:LINE
  Strings words;
};

// The lines of a file of Slurm's and of those that it includes, in order.
class ConfFile {
 public:
  explicit ConfFile(const std::string &path) : readable_(read(path, 0)) {}

  bool is_readable() const { return readable_; }
  const std::vector<Line> &lines() const { return lines_; }
  const Strings &empty_includes() const { return empty_includes_; }

 private:
  bool read(const std::string &path, unsigned depth) {
    std::ifstream file(path);
    if (!file.is_open() || depth > kDeepest) return false;
    unsigned number = 0;
    for (std::string text; std::getline(file, text);) {
      const std::string where = path + ":" + std::to_string(++number);
      Strings words = split(std::string_view(text).substr(0, text.find('#')), " \t\r");
      if (words.size() >= 2 && strcasecmp(words[0].c_str(), "include") == 0) {
        include(words[1][0] == '/' ? words[1] : directory_of(path) + words[1], where, depth);
      } else if (!words.empty()) {
        lines_.push_back({where, std::move(words)});
      }
    }
    return true;
  }

  void include(const std::string &pattern, const std::string &where, unsigned depth) {
    const Strings paths = matching(pattern);
    if (paths.empty()) empty_includes_.push_back(where + " (" + pattern + ")");
    for (const std::string &path : paths) read(path, depth + 1);
  }

  std::vector<Line> lines_;
  Strings empty_includes_;
  bool readable_;
};

// slurm.conf, as far as it says where things are.
struct SlurmConf {
  std::string plugstack;
  std::string plugin_path;  // directories with colons between them
};

SlurmConf read_slurm_conf() {
  SlurmConf found = {slurm_conf_paths("plugstack.conf").front(), ""};
  for (const std::string &path : slurm_conf_paths("slurm.conf")) {
    const ConfFile file(path);
    if (!file.is_readable()) continue;
    found.plugstack = directory_of(path) + "plugstack.conf";
    for (const Line &line : file.lines()) {
      const std::size_t equals = line.words[0].find('=');
      if (equals == std::string::npos) continue;
      const std::string key = line.words[0].substr(0, equals);
      if (strcasecmp(key.c_str(), "PlugStackConfig") == 0) found.plugstack = line.words[0].substr(equals + 1);
      if (strcasecmp(key.c_str(), "PluginDir") == 0) found.plugin_path = line.words[0].substr(equals + 1);
    }
    break;
  }
  return found;
}

// A name without a directory is looked for in PluginDir; where slurm.conf does not say which, where Slurm's packages have it.
std::string find_plugin(const std::string &name, const SlurmConf &slurm_conf) {
  if (name.find('/') != name.npos) return name;
  Strings folders = split(slurm_conf.plugin_path, ":");
  if (folders.empty()) {
    folders = {directory_of(VGPU_PLUGIN), "/usr/lib/slurm", "/usr/lib64/slurm"};
    for (const std::string &folder : matching("/usr/lib/*/slurm-wlm")) folders.push_back(folder);
  }
  for (const std::string &folder : folders) {
    if (access((folder + "/" + name).c_str(), F_OK) == 0) return folder + "/" + name;
  }
  return name;
}

bool loads_plugin(const Line &line) {
  if (line.words.size() < 2 || (line.words[0] != "required" && line.words[0] != "optional")) return false;
  const std::string &path = line.words[1];
  return path.substr(path.rfind('/') + 1) == kPluginName;
}

}  // namespace

Error read_plugstack(const std::string &wanted, Plugstack *plugstack) {
  const SlurmConf slurm_conf = read_slurm_conf();
  Plugstack found;
  found.file = wanted.empty() ? slurm_conf.plugstack : wanted;
  const ConfFile file(found.file);
  if (!file.is_readable()) {
    return make_error(Fault::not_found, "%s cannot be read; give --plugstack=FILE if it is elsewhere",
                      found.file.c_str());
  }
  found.empty = file.empty_includes();
  for (const Line &line : file.lines()) {
    if (!loads_plugin(line) || ++found.lines > 1) continue;
    found.where = line.where;
    found.required = line.words[0] == "required";
    found.plugin = find_plugin(line.words[1], slurm_conf);
    found.keys.assign(line.words.begin() + 2, line.words.end());
    std::vector<char *> keys;
    for (std::string &key : found.keys) keys.push_back(key.data());
    found.bad_keys = SiteConfig::parse(static_cast<int>(keys.size()), keys.data(), &found.config);
  }
  *plugstack = std::move(found);
  return {};
}

}  // namespace vgpu::node
