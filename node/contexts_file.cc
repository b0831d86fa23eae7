#include "contexts_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <iterator>
#include <set>

#include "small_files.h"
#include "text_lines.h"
#include "trusted_file.h"

namespace vgpu::node {

namespace {

constexpr std::string_view kFirstLine = "vgpu-contexts 1";
constexpr std::string_view kMagic = "vgpu-contexts ";
constexpr char kRemedy[] = "remove it and restart slurmd, which measures anew";
constexpr std::int64_t kMaxBytes = region::kMaxUnits * region::kUnitBytes;
constexpr std::size_t kMaxContexts = 1024;  // GPUs that were here once stay

bool set_bytes(std::string_view text, std::int64_t lowest, std::uint64_t *field) {
  if (text == "-" && lowest == 0) return true;
  const auto bytes = to_integer(text, std::max<std::int64_t>(lowest, 1), kMaxBytes);
  if (bytes) *field = static_cast<std::uint64_t>(*bytes);
  return bytes.has_value();
}

bool set_driver(std::string_view text, KnownContext *context) {
  context->driver = text;
  return is_driver_version(text);
}

constexpr TextField<KnownContext> kFields[] = {
    {"uuid",
     [](std::string_view text, KnownContext *context) {
       context->uuid = text;
       return is_device_uuid(text);
     }},
    {"driver", set_driver},
    {"bytes", [](std::string_view text, KnownContext *context) { return set_bytes(text, 1, &context->bytes); }},
    {"usable", [](std::string_view text, KnownContext *context) { return set_bytes(text, 0, &context->usable_bytes); }},
    {"block", [](std::string_view text, KnownContext *context) { return set_bytes(text, 0, &context->block_bytes); }},
    {"measured",
     [](std::string_view text, KnownContext *context) {
       const auto seconds = to_integer(text, 0, INT64_MAX);
       if (seconds) context->measured = *seconds;
       return seconds.has_value();
     }},
};

std::string known(std::uint64_t bytes) { return bytes == 0 ? "-" : std::to_string(bytes); }

}  // namespace

std::string format_contexts(const std::vector<KnownContext> &all) {
  std::string text = std::string(kFirstLine) + "\n";
  for (const KnownContext &context : all) {
    text += "context uuid=" + context.uuid + " driver=" + context.driver + " bytes=" + std::to_string(context.bytes) +
            " usable=" + known(context.usable_bytes) + " block=" + known(context.block_bytes) +
            " measured=" + std::to_string(context.measured) + "\n";
  }
  return text + "end " + std::to_string(all.size()) + "\n";
}

Error parse_contexts(const std::string &where, std::string_view text, std::vector<KnownContext> *all) {
  Lines lines(text);
  std::string_view line;
  if (!lines.next(&line) || line != kFirstLine) {
    if (Lines::take(kMagic, &line) && to_integer(line, 2, 1'000'000)) {
      return make_error(Fault::newer, "%s is of a newer version; update slurm-vgpu on this node", where.c_str());
    }
    return make_error(Fault::foreign, "%s does not list contexts; %s", where.c_str(), kRemedy);
  }
  const auto corrupt = [&](const std::string &why) {
    return make_error(Fault::corrupt, "%s, line %u: %s; %s", where.c_str(), lines.number(), why.c_str(), kRemedy);
  };
  std::vector<KnownContext> found;
  std::set<std::string> uuids;
  while (lines.next(&line)) {
    if (Lines::take("context ", &line)) {
      KnownContext context;
      if (const std::string wrong = read_fields(line, kFields, std::size(kFields), &context); !wrong.empty())
        return corrupt("bad field: " + wrong);
      if (!uuids.insert(context.uuid).second) return corrupt("the same UUID again");
      if (found.size() == kMaxContexts) return corrupt("more GPUs than a node ever had");
      found.push_back(std::move(context));
    } else if (Lines::take("end ", &line)) {
      if (to_integer(line, 0, kMaxContexts) != static_cast<std::int64_t>(found.size()))
        return corrupt("the number of contexts is another");
      if (!lines.empty()) return corrupt("text behind the end");
      *all = std::move(found);
      return {};
    } else {
      return corrupt("that is no line of such a file");
    }
  }
  return make_error(Fault::truncated, "%s is cut off behind line %u; %s", where.c_str(), lines.number(), kRemedy);
}

Error write_contexts(const std::string &path, const std::vector<KnownContext> &all) {
  const std::string text = format_contexts(all);
  std::vector<KnownContext> readable;
  if (Error error = parse_contexts("the new " + path, text, &readable)) return error;
  const std::string directory = path.substr(0, path.rfind('/'));
  if (mkdir(directory.c_str(), 0755) == 0) {
    // The umask is the caller's business.
    if (chmod(directory.c_str(), 0755) != 0) return system_error("cannot set the mode of %s", directory.c_str());
  } else if (errno != EEXIST) {
    return system_error("cannot create %s", directory.c_str());
  }
  return replace_file(path, text);
}

Error read_contexts(const std::string &path, region::Trust trust, std::vector<KnownContext> *all) {
  std::string text;
  if (Error error = read_trusted_file(path, trust, "slurmd measures when it starts", &text)) return error;
  return parse_contexts(path, text, all);
}

const KnownContext *find_context(const std::vector<KnownContext> &all, std::string_view uuid, std::string_view driver) {
  for (const KnownContext &context : all) {
    if (context.uuid == uuid && context.driver == driver) return &context;
  }
  return nullptr;
}

void replace_context(const KnownContext &figure, std::vector<KnownContext> *all) {
  std::erase_if(*all, [&figure](const KnownContext &known) { return known.uuid == figure.uuid; });
  all->push_back(figure);
}

void add_known_contexts(const std::vector<KnownContext> &all, Node *node) {
  for (NodeDevice &device : node->devices) {
    const KnownContext *found = find_context(all, device.identity.uuid, node->driver);
    if (found == nullptr) continue;
    device.context = {found->bytes, region::ContextSource::measured};
    if (found->usable_bytes != 0) device.usable_bytes = std::min(found->usable_bytes, device.identity.memory_bytes);
    device.block_bytes = found->block_bytes;
  }
}

}  // namespace vgpu::node
