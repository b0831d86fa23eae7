#include "install.h"

#include <unistd.h>

#include <filesystem>

namespace vgpu::node {

namespace {

namespace fs = std::filesystem;

// A file of the build tree that we lie in; empty if it is not there, or we were installed.
std::string in_build_tree(const char *name) {
  std::error_code trouble;
  const fs::path folder = fs::read_symlink("/proc/self/exe", trouble).parent_path();
  if (trouble || folder.parent_path().filename() != "utils") return "";
  const fs::path file = folder.parent_path().parent_path() / name;
  return fs::exists(file, trouble) ? file.string() : "";
}

}  // namespace

Error find_library(const std::string &wanted, std::string *path) {
  std::string found = wanted;
  if (found.empty()) found = in_build_tree("libvgpu/libvgpu.so");
  if (found.empty()) found = VGPU_LIBRARY;
  std::error_code trouble;
  const std::string absolute = fs::absolute(found, trouble).lexically_normal();
  if (trouble || !fs::is_regular_file(absolute, trouble) || access(absolute.c_str(), R_OK) != 0) {
    return make_error(Fault::not_found, "there is no library %s; install slurm-vgpu, or give --library=PATH",
                      absolute.c_str());
  }
  // ld.so splits LD_PRELOAD at these and has no way to quote them.
  if (absolute.find_first_of(" :") != std::string::npos) {
    return make_error(Fault::invalid, "%s cannot be preloaded: blanks and colons in its path; give another --library",
                      absolute.c_str());
  }
  *path = absolute;
  return {};
}

std::string find_probe() { return in_build_tree("utils/vgpu-probe/vgpu-probe"); }

}  // namespace vgpu::node
