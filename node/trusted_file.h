// A text file of root's, read with suspicion.
#pragma once

#include <string>

#include "base/error.h"
#include "region/files.h"

namespace vgpu::node {

// Refuses links, fifos, files of others than `trust` allows, files that others may write, and what is larger than 1 MiB.
// `writer`: who makes the file, for the sentence when there is none (Fault::not_found).
Error read_trusted_file(const std::string &path, region::Trust trust, const char *writer, std::string *text);

}  // namespace vgpu::node
