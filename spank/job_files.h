// The small files beside a region: what the prolog leaves for the steps of a job. All are root's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "node/site_config.h"
#include "options.h"

namespace vgpu::spank {

class JobFiles {
 public:
  JobFiles(const node::SiteConfig &config, std::uint32_t job_id);

  // In place of a region, and of whatever an earlier job of this id left.
  Error write_error(const std::string &sentence) const;
  bool read_error(std::string *sentence) const;
  Error write_opt_out() const;
  bool read_opt_out() const;
  Error write_undecided() const;
  bool read_undecided() const;

  // In a region that is there.
  Error write_request(const RawOptions &options) const;
  Error read_request(RawOptions *options) const;

  // Beside it. False, and `gpus` stays, when no prolog noted any.
  Error write_gpus(const std::vector<unsigned> &gpus) const;
  bool read_gpus(std::vector<unsigned> *gpus) const;
  Error remove_gpus() const;

 private:
  Error place_alone(const char *name, const std::string &content) const;

  node::RegionDirectory parent_;
  node::JobDirectory directory_;
  std::uint32_t job_id_;
};

}  // namespace vgpu::spank
