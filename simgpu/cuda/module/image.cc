// Telling the kinds of images apart. Containers: nvcc's fat binaries and their wrapper, and what our own linker returns.
#include "simgpu/cuda/module/image.h"

#include <elf.h>

#include <cstring>

#include "simgpu/cuda/module/module.h"

namespace simgpu {
namespace {

struct FatWrapper {
  uint32_t magic, version;
  const char *data;
  const void *unused;
};
constexpr uint32_t kFatWrapperMagic = 0x466243b1;

struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
constexpr uint32_t kFatMagic = 0xba55ed50;

// One member of a fat binary. Only the fields we need have names.
struct FatEntry {
  uint16_t kind;  // 1 PTX, 2 cubin
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;
  uint32_t options_offset;
  uint16_t minor, major;
  uint32_t arch;
  uint32_t name_offset, name_bytes;
  uint64_t flags;
  uint64_t reserved;
  uint64_t plain_bytes;  // not 0 for a compressed member
};

}  // namespace

bool read_fatbinary(const char *data, Image *image) {
  FatHeader header;
  memcpy(&header, data, sizeof header);
  const char *at = data + header.header_bytes;
  const char *end = at + header.bytes;
  bool cubin = false, ptx = false, unread = false;
  Image from_cubin, from_ptx;
  while (end - at >= static_cast<ptrdiff_t>(sizeof(FatEntry))) {
    FatEntry entry;
    memcpy(&entry, at, sizeof entry);
    const char *payload = at + entry.header_bytes;
    if (entry.header_bytes < 32 || entry.bytes > static_cast<uint64_t>(end - payload)) break;
    if (entry.header_bytes >= sizeof(FatEntry) && entry.plain_bytes != 0)
      unread = true;  // compressed: the simulator does not unpack it
    else if (entry.kind == 2 && !cubin)
      cubin = read_cubin(payload, entry.bytes, &from_cubin);
    else if (entry.kind == 1 && !ptx)
      ptx = read_ptx(payload, strnlen(payload, entry.bytes), &from_ptx);
    at = payload + entry.bytes;
  }
  if (cubin || ptx) {
    // PTX tells the parameters and which variables are managed; the names are the same.
    *image = ptx ? from_ptx : from_cubin;
    return true;
  }
  if (unread) log_line("fat binary: every member is compressed; build with --no-compress");
  return false;
}

std::string pack_linked(const std::vector<std::string> &parts) {
  LinkedHeader header;
  memcpy(header.magic, kLinkedMagic, sizeof header.magic);
  header.parts = static_cast<uint32_t>(parts.size());
  std::string out(reinterpret_cast<const char *>(&header), sizeof header);
  for (const std::string &part : parts) {
    uint64_t bytes = part.size();
    out.append(reinterpret_cast<const char *>(&bytes), sizeof bytes);
    out += part;
  }
  header.bytes = out.size();
  memcpy(out.data(), &header, sizeof header);
  return out;
}

bool read_image(const void *data, Image *image) {
  if (data == nullptr) return false;
  auto *bytes = static_cast<const char *>(data);
  uint32_t magic;
  memcpy(&magic, bytes, sizeof magic);
  if (magic == kFatWrapperMagic) {
    FatWrapper wrapper;
    memcpy(&wrapper, bytes, sizeof wrapper);
    return read_image(wrapper.data, image);
  }
  if (magic == kFatMagic) return read_fatbinary(bytes, image);
  if (memcmp(bytes, ELFMAG, SELFMAG) == 0) return read_cubin(bytes, elf_length(bytes), image);
  if (strncmp(bytes, kLinkedMagic, sizeof kLinkedMagic - 1) == 0) {
    LinkedHeader header;
    memcpy(&header, bytes, sizeof header);
    const char *at = bytes + sizeof header;
    for (uint32_t i = 0; i < header.parts; i++) {
      uint64_t length;
      memcpy(&length, at, sizeof length);
      std::string part(at + sizeof length, length);
      at += sizeof length + length;
      if (!read_image(part.c_str(), image)) return false;
    }
    return true;
  }
  return read_ptx(bytes, strlen(bytes), image);
}

}  // namespace simgpu
