#include "job_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "node/lists.h"
#include "node/small_files.h"
#include "region/region.h"

namespace vgpu::spank {

namespace {

constexpr std::size_t kMaxFile = 1 << 16;

}  // namespace

JobFiles::JobFiles(const node::SiteConfig &config, std::uint32_t job_id)
    : parent_(config.directory()), directory_(parent_.job(job_id)), job_id_(job_id) {}

// As a region appears: whole, or not at all.
Error JobFiles::place_alone(const char *name, const std::string &content) const {
  if (Error error = parent_.remove_job(job_id_)) return error;
  std::string temporary = parent_.new_entry();
  if (mkdtemp(temporary.data()) == nullptr) {
    return system_error("cannot create a directory in %s", parent_.path().c_str());
  }
  const std::string file = temporary + "/" + name;
  Error error = node::replace_file(file, content);
  if (!error && (chmod(temporary.c_str(), 0755) != 0 ||
                 renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, directory_.path().c_str(), RENAME_NOREPLACE) != 0)) {
    error = system_error("cannot put %s in place", directory_.path().c_str());
  }
  if (error) {
    unlink(file.c_str());
    rmdir(temporary.c_str());
  }
  return error;
}

Error JobFiles::write_error(const std::string &sentence) const { return place_alone(region::kErrorName, sentence); }

bool JobFiles::read_error(std::string *sentence) const {
  return !node::read_file(directory_.error_file(), kMaxFile, sentence);
}

Error JobFiles::write_opt_out() const { return place_alone(region::kOptedOutName, ""); }

bool JobFiles::read_opt_out() const { return access(directory_.opted_out_file().c_str(), F_OK) == 0; }

Error JobFiles::write_undecided() const { return place_alone(region::kUndecidedName, ""); }

bool JobFiles::read_undecided() const { return access(directory_.undecided_file().c_str(), F_OK) == 0; }

Error JobFiles::write_request(const RawOptions &options) const {
  std::string content;
  if (options.mem) content += "gpu-mem=" + *options.mem + "\n";
  if (options.sm) content += "gpu-sm=" + *options.sm + "\n";
  return node::replace_file(directory_.request_file(), content);
}

Error JobFiles::read_request(RawOptions *options) const {
  std::string content;
  if (Error error = node::read_file(directory_.request_file(), kMaxFile, &content)) return error;
  RawOptions read;
  for (const std::string &line : node::split(content, "\n")) {
    if (line.rfind("gpu-mem=", 0) == 0) read.mem = line.substr(8);
    if (line.rfind("gpu-sm=", 0) == 0) read.sm = line.substr(7);
  }
  *options = std::move(read);
  return {};
}

Error JobFiles::write_gpus(const std::vector<unsigned> &gpus) const {
  return node::replace_file(parent_.gpus_file(job_id_), node::format_index_list(gpus));
}

bool JobFiles::read_gpus(std::vector<unsigned> *gpus) const {
  std::string content;
  if (node::read_file(parent_.gpus_file(job_id_), kMaxFile, &content)) return false;
  return node::parse_index_list(content, region::kMaxDevices, gpus);
}

Error JobFiles::remove_gpus() const {
  const std::string file = parent_.gpus_file(job_id_);
  if (unlink(file.c_str()) == 0 || errno == ENOENT) return {};
  return system_error("cannot remove %s", file.c_str());
}

}  // namespace vgpu::spank
