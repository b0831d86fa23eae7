// Regions as JSON; docs/vgpuctl.schema.json says what is in there. Sizes are bytes, what is not known is null.
#pragma once

#include <string>

#include "view.h"

namespace vgpu::ctl {

std::string list_json(const NodeView &view);
std::string show_json(const std::string &host, const RegionView &region);

}  // namespace vgpu::ctl
