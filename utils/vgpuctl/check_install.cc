// The part of vgpuctl check that looks at what was installed, and how Slurm was told of it.
#include <gnu/libc-version.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "findings.h"
#include "node/install.h"
#include "node/plugstack.h"

namespace vgpu::ctl {

namespace {

std::string bytes_of_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The newest symbol version that it names; libraries name what they need in clear.
std::pair<unsigned, unsigned> glibc_need(const std::string &content) {
  std::pair<unsigned, unsigned> newest = {0, 0};
  constexpr char kName[] = "GLIBC_";
  for (std::size_t at = content.find(kName); at != content.npos; at = content.find(kName, at + 1)) {
    unsigned major = 0;
    unsigned minor = 0;
    if (std::sscanf(content.c_str() + at, "GLIBC_%u.%u", &major, &minor) == 2) {
      newest = std::max(newest, {major, minor});
    }
  }
  return newest;
}

std::string version_in(const std::string &content) {
  constexpr char kMark[] = "slurm-vgpu version ";
  const std::size_t at = content.find(kMark);
  return at == content.npos ? "" : content.c_str() + at + sizeof kMark - 1;
}

void check_version(const std::string &path, const std::string &content, Findings *findings) {
  const std::string version = version_in(content);
  if (version == VGPU_VERSION) {
    findings->ok(path + ": version " + version);
  } else {
    findings->fail(path + ": version " + (version.empty() ? "unknown" : version) + ", but this is vgpuctl " +
                   VGPU_VERSION + "; install the same version everywhere");
  }
}

void check_library(const std::string &wanted, Findings *findings) {
  std::string path;
  if (const Error error = node::find_library(wanted, &path)) {
    findings->fail(error);
    return;
  }
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    findings->fail(path + ": must be root's, and writable by nobody else");
  }
  const std::string content = bytes_of_file(path);
  check_version(path, content, findings);
  const auto need = glibc_need(content);
  unsigned major = 0;
  unsigned minor = 0;
  std::sscanf(gnu_get_libc_version(), "%u.%u", &major, &minor);
  const std::string text = path + ": needs glibc " + std::to_string(need.first) + "." + std::to_string(need.second) +
                           ", this node has " + gnu_get_libc_version();
  if (need > std::pair(major, minor)) {
    findings->fail(text + "; build it on an older system");
  } else {
    findings->ok(text);
  }
}

void check_plugin(const std::string &path, Findings *findings) {
  const std::string content = bytes_of_file(path);
  if (content.empty()) {
    findings->fail(path + ": cannot be read; install it where Slurm looks (PluginDir), or give --plugin=PATH");
  } else {
    check_version(path, content, findings);
  }
}

void check_line(const Options &options, const node::Plugstack &plugstack, Findings *findings) {
  const std::string line = plugstack.where + ": ";
  if (plugstack.bad_keys) {
    findings->fail(plugstack.bad_keys);
  } else if (!plugstack.required) {
    findings->warn(line + "the plugin is optional: where it fails, tasks run without limits; write required");
  } else {
    char overcommit[32];
    std::snprintf(overcommit, sizeof overcommit, "%g", static_cast<double>(plugstack.config.overcommit_percent) / 100);
    findings->ok(line + "required, overcommit=" + overcommit);
  }
  if (plugstack.lines > 1) {
    findings->warn(line + "loads the plugin, and so do " + std::to_string(plugstack.lines - 1) +
                   " more lines, which Slurm ignores; remove them");
  }
  if (!plugstack.bad_keys && plugstack.config.region_dir != options.region_dir) {
    findings->warn(line + "regions are in " + plugstack.config.region_dir + ", but vgpuctl looks in " +
                   options.region_dir + "; set VGPU_REGION_DIR");
  }
}

void check_plugstack(const Options &options, const node::Plugstack &plugstack, Findings *findings) {
  if (!plugstack.where.empty()) return check_line(options, plugstack, findings);
  std::string nothing;
  for (const std::string &include : plugstack.empty) nothing += "; nothing is included by " + include;
  findings->fail(plugstack.file + ": does not load spank_vgpu.so, so no job has limits" + nothing +
                 "; add a line: required spank_vgpu.so");
}

}  // namespace

void check_install(const Options &options, Findings *findings) {
  node::Plugstack plugstack;
  const Error no_plugstack = node::read_plugstack(options.plugstack, &plugstack);
  if (no_plugstack) {
    findings->warn(no_plugstack);
  } else {
    check_plugstack(options, plugstack, findings);
  }
  // What Slurm was told is what tasks get.
  const bool is_loaded = !plugstack.where.empty();
  const bool knows_library = is_loaded && !plugstack.bad_keys;
  check_library(options.library.empty() && knows_library ? plugstack.config.library : options.library, findings);
  if (!options.plugin.empty()) {
    check_plugin(options.plugin, findings);
  } else if (is_loaded) {
    check_plugin(plugstack.plugin, findings);
  }
}

}  // namespace vgpu::ctl
