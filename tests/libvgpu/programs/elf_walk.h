// Finds a function of a loaded object by reading the object's own tables, as tools do that trust no dlsym.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

inline void *look_up(const link_map &object, const char *name) {
  const ElfW(Sym) *symbols = nullptr;
  const char *strings = nullptr;
  const std::uint32_t *table = nullptr;
  for (const ElfW(Dyn) *entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym) *>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char *>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_GNU_HASH) table = reinterpret_cast<const std::uint32_t *>(entry->d_un.d_ptr);
  }
  if (symbols == nullptr || strings == nullptr || table == nullptr || table < reinterpret_cast<void *>(object.l_addr)) {
    return nullptr;
  }
  const std::uint32_t *buckets = table + 4 + 2 * table[2], *chains = buckets + table[0];
  for (std::uint32_t bucket = 0; bucket < table[0]; ++bucket) {
    for (std::uint32_t i = buckets[bucket]; i >= table[1]; ++i) {
      const bool defined = symbols[i].st_shndx != SHN_UNDEF;
      if (defined && std::strcmp(strings + symbols[i].st_name, name) == 0) {
        return reinterpret_cast<void *>(object.l_addr + symbols[i].st_value);
      }
      if ((chains[i - table[1]] & 1) != 0) break;
    }
  }
  return nullptr;
}
