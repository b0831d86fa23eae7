// vgpuctl check: is this node as it should be; each line says what to do about it.
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "commands.h"
#include "findings.h"
#include "node/counted_processes.h"
#include "node/node.h"
#include "node/private_region.h"
#include "node/probe.h"
#include "node/proc_files.h"
#include "node/values.h"
#include "node/watcher.h"
#include "view.h"

namespace vgpu::ctl {

namespace {

std::string first_line(const char *path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void check_driver(Findings *findings) {
  const std::string version = first_line("/proc/driver/nvidia/version");
  if (version.empty()) {
    findings->warn("driver: no NVIDIA kernel driver is loaded; install it, or load it with modprobe nvidia");
  } else {
    findings->ok("driver: " + version);
  }
}

std::set<std::string> uuids_of(const node::Node &node) {
  std::set<std::string> uuids;
  for (const node::NodeDevice &device : node.devices) uuids.insert(device.identity.uuid);
  return uuids;
}

void check_gpus(const Options &options, Findings *findings) {
  node::Node now;
  const Error no_nvml = probe_devices(options.probe(), &now);
  if (no_nvml) {
    findings->fail(no_nvml);
  } else {
    findings->ok("NVML: answers; GPUs: " + std::to_string(now.devices.size()));
  }
  for (const std::string &problem : now.problems) findings->warn("NVML: " + problem);

  const std::string file = options.directory().node_file();
  node::Node kept;
  if (const Error error = read_node(file, region::Trust::root, &kept)) {
    findings->fail(error);
    return;
  }
  const auto unnumbered = std::count_if(kept.devices.begin(), kept.devices.end(),
                                        [](const node::NodeDevice &device) { return device.gres_index < 0; });
  if (!no_nvml && uuids_of(kept) != uuids_of(now)) {
    findings->fail(file + ": lists other GPUs than NVML does; restart slurmd");
  } else if (unnumbered > 0) {
    findings->warn(file + ": " + std::to_string(unnumbered) + " GPUs are not in gres.conf; jobs cannot have them");
  } else {
    findings->ok(file + ": " + std::to_string(kept.devices.size()) + " GPUs, jobs without their limits " +
                 (kept.fail_open ? "run (fail=open)" : "do not run (fail=closed)"));
  }
}

void check_directory(const Options &options, Findings *findings) {
  const char *path = options.region_dir.c_str();
  struct stat status;
  struct statfs filesystem;
  if (lstat(path, &status) != 0 || statfs(path, &filesystem) != 0) {
    findings->fail(options.region_dir + ": " + std::strerror(errno) +
                   "; slurmd makes it when spank_vgpu.so is in plugstack.conf");
    return;
  }
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(status.st_mode & 07777));
  const bool is_roots = S_ISDIR(status.st_mode) && status.st_uid == 0 && (status.st_mode & 07777) == 0755;
  if (!is_roots) {
    findings->fail(options.region_dir + ": must be a directory of root's with mode 0755, not uid " +
                   std::to_string(status.st_uid) + "'s with mode " + mode + "; chown root and chmod 0755");
  } else if (filesystem.f_type != TMPFS_MAGIC) {
    findings->warn(options.region_dir + ": is not on a tmpfs; use etc/systemd/run-vgpu.mount, or region_size=64M");
  } else {
    const auto size = static_cast<std::uint64_t>(filesystem.f_blocks) * static_cast<std::uint64_t>(filesystem.f_bsize);
    const auto left = static_cast<std::uint64_t>(filesystem.f_bavail) * static_cast<std::uint64_t>(filesystem.f_bsize);
    const std::string room = node::format_bytes(left) + " of " + node::format_bytes(size) + " free";
    if (left < size / 10) {
      findings->warn(options.region_dir + ": nearly full, " + room + "; run vgpuctl gc");
    } else {
      findings->ok(options.region_dir + ": root's, mode 0755, tmpfs, " + room);
    }
  }
}

// Private regions lie in a directory that anybody could have made before.
void check_private_directory(Findings *findings) {
  const std::string path = node::private_directory(node::runtime_directory(std::getenv("XDG_RUNTIME_DIR")));
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || node::is_own_directory(path)) return;
  findings->warn(path + ": is uid " + std::to_string(status.st_uid) +
                 "'s, not yours; nothing in it is looked at, and vgpu-run refuses to run. Have it removed");
}

// Whether anybody audits; limits hold without.
void check_watcher(const Options &options, Findings *findings) {
  if (geteuid() != 0) return;  // only root sees the lock
  if (node::watcher_runs(options.directory())) {
    findings->ok("vgpu-watch: runs");
  } else {
    findings->warn(node::kNoWatcher);
  }
}

void check_regions(const Options &options, Findings *findings) {
  const NodeView view = look(options, region::Detail::liveness);
  for (const Trouble &trouble : view.troubles) findings->fail(trouble.error);
  unsigned stale = 0;
  for (const RegionView &region : view.regions) {
    if (region.damage) findings->warn(region.damage);
    if (region.state != State::stale) continue;
    ++stale;
    findings->stale("job " + region.job + " of " + region.user +
                    ": all of its processes are dead; if it has ended, run vgpuctl gc");
  }
  if (stale == 0 && view.troubles.empty()) {
    findings->ok("regions: " + std::to_string(view.regions.size()) + ", none stale");
  }
}

std::string environment_of(int pid, const std::string &name) {
  const std::string environment = '\0' + node::read_proc_file(pid, "environ");
  const std::size_t at = environment.find('\0' + name + '=');
  return at == environment.npos ? "" : environment.c_str() + at + name.size() + 2;
}

void check_process(const Options &options, Findings *findings) {
  const std::string who = "process " + std::to_string(options.pid) + " (" + node::process_name(options.pid) + ")";
  const std::string maps = node::read_proc_file(options.pid, "maps");
  if (maps.empty()) {
    findings->fail("process " + std::to_string(options.pid) + ": there is none, or it is not yours to look at");
    return;
  }
  if (maps.find("/libvgpu.so") == maps.npos) {
    findings->fail(who + ": libvgpu.so is not loaded; is it statically linked, or was LD_PRELOAD cleared (" +
                   (environment_of(options.pid, "LD_PRELOAD").empty() ? "it is empty" : "it is set") + ")?");
    return;
  }
  findings->ok(who + ": libvgpu.so is loaded");
  const NodeView view = look(options, region::Detail::liveness);
  for (const RegionView &region : view.regions) {
    if (region.snapshot && node::CountedProcesses(*region.snapshot).contains(options.pid)) {
      findings->ok(who + ": counted in job " + region.job);
      return;
    }
  }
  const std::string region = environment_of(options.pid, "VGPU_REGION");
  findings->warn(who + ": in no region yet; it has not used a GPU" +
                 (region.empty() ? ", and VGPU_REGION is not set" : " (VGPU_REGION=" + region + ")"));
}

}  // namespace

int check(const Options &options) {
  Findings findings;
  check_driver(&findings);
  check_gpus(options, &findings);
  check_contexts(options, &findings);
  check_directory(options, &findings);
  check_install(options, &findings);
  check_private_directory(&findings);
  check_watcher(options, &findings);
  check_regions(options, &findings);
  if (options.pid != 0) check_process(options, &findings);
  return findings.show(wants_color(options.color));
}

}  // namespace vgpu::ctl
