// The description of a node: a small text file, or the same text in an environment variable. One `device` line starts a
// device, `key = value` lines before the first one set defaults for all. docs/simgpu.md lists the keys.
#pragma once

#include <string>
#include <vector>

#include "simgpu/node/clock.h"
#include "simgpu/node/layout.h"

namespace simgpu {

struct NodeConfig {
  std::vector<DeviceFacts> devices;  // in PCI bus order, which is NVML's order
  std::vector<bool> broken;
  uint64_t idle_ms = 2000;  // how long the kernel process stays after its last client
  ClockMode clock = ClockMode::kReal;
  NvmlManners nvml;
  bool count_calls = false;
};

// Parses a description, behind the lines of SIMGPU_WHIMS if there are any; on a mistake returns false and says in `error`
// which line and why.
bool parse_node_config(const std::string &text, NodeConfig *config, std::string *error);

// The description of the node in `directory`: SIMGPU_CONFIG (a file name, or the text itself when it has a newline or '='),
// else `directory`/node.conf, else two 16 GiB devices.
bool load_node_config(const std::string &directory, NodeConfig *config, std::string *error);

// Keys of config_whims.cc: null when the line was understood, else why not.
const char *apply_whim(const std::string &key, const std::string &value, DeviceFacts *facts, NodeConfig *config);
bool set_profile(const std::string &name, DeviceFacts *facts);

bool parse_duration(const std::string &text, uint64_t *ns);
bool parse_bytes(const std::string &text, uint64_t *bytes);
std::string format_uuid(const uint8_t uuid[16]);

}  // namespace simgpu
