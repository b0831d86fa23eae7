// Cubins: 64-bit ELF files for machine 190. Kernels are the symbols of .text.<name> sections; variables are the object
// symbols of .nv.global, .nv.global.init and .nv.constant*, and their initial bytes are what the section holds.
#include <elf.h>

#include <cstring>

#include "simgpu/cuda/module/module.h"

namespace simgpu {
namespace {

template <typename T>
bool fetch(const char *data, size_t length, uint64_t offset, T *out) {
  if (offset > length || sizeof(T) > length - offset) return false;
  memcpy(out, data + offset, sizeof(T));
  return true;
}

std::string text_at(const char *data, size_t length, uint64_t offset) {
  if (offset >= length) return "";
  return std::string(data + offset, strnlen(data + offset, length - offset));
}

}  // namespace

size_t elf_length(const char *data) {
  Elf64_Ehdr header;
  memcpy(&header, data, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  uint64_t end = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  uint64_t program = header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize;
  return end > program ? end : program;
}

bool read_cubin(const char *data, size_t length, Image *image) {
  Elf64_Ehdr header;
  if (!fetch(data, length, 0, &header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  for (size_t i = 0; i < sections.size(); i++)
    if (!fetch(data, length, header.e_shoff + i * header.e_shentsize, &sections[i])) return false;
  if (header.e_shstrndx >= sections.size()) return false;
  auto section_name = [&](size_t i) {
    return text_at(data, length, sections[header.e_shstrndx].sh_offset + sections[i].sh_name);
  };
  for (const Elf64_Shdr &table : sections) {
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= sections.size()) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      if (!fetch(data, length, table.sh_offset + at, &symbol)) return false;
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= sections.size()) continue;
      std::string name = text_at(data, length, sections[table.sh_link].sh_offset + symbol.st_name);
      std::string where = section_name(symbol.st_shndx);
      const Elf64_Shdr &home = sections[symbol.st_shndx];
      unsigned type = ELF64_ST_TYPE(symbol.st_info);
      // Kernels carry the entry flag of NVIDIA's st_other; device functions do not.
      if (type == STT_FUNC && where == ".text." + name && (symbol.st_other & 0x10) != 0) {
        ImageKernel kernel;
        kernel.name = name;
        image->kernels.push_back(kernel);
      } else if (type == STT_OBJECT && (where.rfind(".nv.global", 0) == 0 || where.rfind(".nv.constant", 0) == 0)) {
        ImageVariable variable;
        variable.name = name;
        variable.bytes = symbol.st_size;
        variable.constant = where.rfind(".nv.constant", 0) == 0;
        uint64_t start = home.sh_offset + symbol.st_value;
        if (home.sh_type == SHT_PROGBITS && start <= length && symbol.st_size <= length - start)
          variable.initial.assign(data + start, symbol.st_size);
        image->variables.push_back(variable);
      }
    }
  }
  image->code_bytes += length;
  return true;
}

}  // namespace simgpu
