// What lies in the directory that holds all regions of a node, by its names.
#pragma once

#include <dirent.h>

#include <memory>

namespace vgpu::node {

struct CloseDirectory {
  void operator()(DIR *directory) const { closedir(directory); }
};
using ScopedDirectory = std::unique_ptr<DIR, CloseDirectory>;

// The directory of a job. Everything else (the node file, the locks) is not a number.
bool is_job_id(const char *name);

// Of somebody who was making or removing something. Creators of regions work under the admission lock: what they had not
// put in place when somebody else holds it, they never will.
bool is_leftover(const char *name);

// A file, or a directory with files in it. Follows no link.
void remove_leftover(int parent, const char *name);

}  // namespace vgpu::node
