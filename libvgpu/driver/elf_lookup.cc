#include "elf_lookup.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <atomic>
#include <cstdint>

#include "base/early.h"

namespace vgpu::driver {

namespace {

using Sym = ElfW(Sym);

bool contains(const dl_phdr_info &object, const void *address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr) &segment = object.dlpi_phdr[i];
    const std::uintptr_t start = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && at >= start && at < start + segment.p_memsz) return true;
  }
  return false;
}

// The tables of one loaded object.
class Object {
 public:
  explicit Object(const dl_phdr_info &info) : base_(info.dlpi_addr) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) read_all(base_ + info.dlpi_phdr[i].p_vaddr);
    }
  }
  explicit Object(const link_map &object) : base_(object.l_addr) {
    read_all(reinterpret_cast<std::uintptr_t>(object.l_ld));
  }

  void *find(const char *name) const {
    if (symbols_ == nullptr || strings_ == nullptr) return nullptr;
    if (gnu_hash_ != nullptr) return find_gnu(name);
    if (hash_ != nullptr) return find_sysv(name);
    return nullptr;
  }

  bool is_called(const char *soname) const {
    return strings_ != nullptr && soname_ != nullptr && same_text(strings_ + *soname_, soname);
  }

 private:
  void read_all(std::uintptr_t dynamic) {
    for (const auto *entry = reinterpret_cast<const ElfW(Dyn) *>(dynamic); entry->d_tag != DT_NULL; ++entry) {
      read(*entry);
    }
  }

  void read(const ElfW(Dyn) & entry) {
    // glibc has relocated these in place, except in objects whose dynamic section is read-only.
    const std::uintptr_t value = entry.d_un.d_ptr;
    const std::uintptr_t address = value < base_ ? base_ + value : value;
    switch (entry.d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const Sym *>(address);
        break;
      case DT_STRTAB:
        strings_ = reinterpret_cast<const char *>(address);
        break;
      case DT_GNU_HASH:
        gnu_hash_ = reinterpret_cast<const std::uint32_t *>(address);
        break;
      case DT_HASH:
        hash_ = reinterpret_cast<const std::uint32_t *>(address);
        break;
      case DT_SONAME:
        soname_ = &entry.d_un.d_val;
        break;
      default:
        break;
    }
  }

  void *address_if(const Sym &symbol, const char *name) const {
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) return nullptr;
    if (!same_text(strings_ + symbol.st_name, name)) return nullptr;
    return reinterpret_cast<void *>(base_ + symbol.st_value);
  }

  void *find_gnu(const char *name) const {
    std::uint32_t hash = 5381;
    for (const char *c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    const std::uint32_t nbuckets = gnu_hash_[0], first = gnu_hash_[1], bloom_words = gnu_hash_[2];
    const std::uint32_t *buckets = gnu_hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t *chains = buckets + nbuckets;
    std::uint32_t index = nbuckets == 0 ? 0 : buckets[hash % nbuckets];
    if (index < first) return nullptr;
    for (;; ++index) {
      const std::uint32_t found = chains[index - first];
      if ((found | 1) == (hash | 1)) {
        if (void *address = address_if(symbols_[index], name)) return address;
      }
      if ((found & 1) != 0) return nullptr;
    }
  }

  void *find_sysv(const char *name) const {
    const std::uint32_t count = hash_[1];
    for (std::uint32_t index = 1; index < count; ++index) {
      if (void *address = address_if(symbols_[index], name)) return address;
    }
    return nullptr;
  }

  std::uintptr_t base_;
  const Sym *symbols_ = nullptr;
  const char *strings_ = nullptr;
  const std::uint32_t *gnu_hash_ = nullptr;
  const std::uint32_t *hash_ = nullptr;
  const ElfW(Xword) *soname_ = nullptr;  // where in strings_
};

// The loader's list of objects, as debuggers find it.
const link_map *first_object() {
  const auto *segments = reinterpret_cast<const ElfW(Phdr) *>(getauxval(AT_PHDR));
  const ElfW(Phdr) *own = nullptr, *dynamic = nullptr;
  for (unsigned long i = 0; segments != nullptr && i < getauxval(AT_PHNUM); ++i) {
    if (segments[i].p_type == PT_PHDR) own = &segments[i];
    if (segments[i].p_type == PT_DYNAMIC) dynamic = &segments[i];
  }
  if (own == nullptr || dynamic == nullptr) return nullptr;
  const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(segments) - own->p_vaddr;
  for (const auto *entry = reinterpret_cast<const ElfW(Dyn) *>(base + dynamic->p_vaddr); entry->d_tag != DT_NULL;
       ++entry) {
    const auto *debug = reinterpret_cast<const r_debug *>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_DEBUG) return debug != nullptr ? debug->r_map : nullptr;
  }
  return nullptr;
}

using Visitor = int (*)(dl_phdr_info *, std::size_t, void *);
using VisitFunction = int(Visitor, void *);
std::atomic<VisitFunction *> libc_visit{nullptr};

// libc's own dl_iterate_phdr. That of ThreadSanitizer cannot be called before we have told it where libc's is.
void visit_objects(Visitor visitor, void *data) {
  VisitFunction *visit = libc_visit.load(std::memory_order_relaxed);
  for (const link_map *object = first_object(); visit == nullptr && object != nullptr; object = object->l_next) {
    const Object tables(*object);
    if (tables.is_called("libc.so.6")) visit = reinterpret_cast<VisitFunction *>(tables.find("dl_iterate_phdr"));
  }
  if (visit == nullptr) visit = &dl_iterate_phdr;
  libc_visit.store(visit, std::memory_order_relaxed);
  visit(visitor, data);
}

// The first look at the loader's list is without its lock: before there are threads.
__attribute__((constructor)) void look_early() {
  visit_objects([](dl_phdr_info *, std::size_t, void *) { return 1; }, nullptr);
}

struct Search {
  const char *name;
  bool past_us;
  void *behind;    // found in an object after ours
  void *anywhere;  // found in any other object
};

const void *our_code() { return reinterpret_cast<const void *>(&next_definition); }

int search_object(dl_phdr_info *info, std::size_t, void *data) {
  Search &search = *static_cast<Search *>(data);
  if (contains(*info, our_code())) {
    search.past_us = true;
    return 0;
  }
  if (!search.past_us && search.anywhere != nullptr) return 0;
  void *found = Object(*info).find(search.name);
  if (found == nullptr) return 0;
  if (search.anywhere == nullptr) search.anywhere = found;
  if (search.past_us) search.behind = found;
  return search.past_us ? 1 : 0;
}

struct Order {
  const void *code;
  bool precedes;
};

int compare_order(dl_phdr_info *info, std::size_t, void *data) {
  Order &order = *static_cast<Order *>(data);
  if (contains(*info, our_code())) return 1;
  order.precedes = contains(*info, order.code);
  return order.precedes ? 1 : 0;
}

struct Membership {
  const void *code;
  bool member;
};

int compare_first(dl_phdr_info *info, std::size_t, void *data) {
  Membership &membership = *static_cast<Membership *>(data);
  membership.member = contains(*info, membership.code);
  return 1;
}

struct Naming {
  const void *code;
  const char *soname;
  bool agrees;
};

int compare_soname(dl_phdr_info *info, std::size_t, void *data) {
  Naming &naming = *static_cast<Naming *>(data);
  if (!contains(*info, naming.code)) return 0;
  naming.agrees = Object(*info).is_called(naming.soname);
  return 1;
}

}  // namespace

void *next_definition(const char *name) {
  Search search = {name, false, nullptr, nullptr};
  visit_objects(search_object, &search);
  return search.behind != nullptr ? search.behind : search.anywhere;
}

bool precedes_us(const void *code) {
  Order order = {code, false};
  visit_objects(compare_order, &order);
  return order.precedes;
}

bool in_main_program(const void *code) {
  Membership membership = {code, false};
  visit_objects(compare_first, &membership);
  return membership.member;
}

bool has_soname(const void *code, const char *soname) {
  Naming naming = {code, soname, false};
  visit_objects(compare_soname, &naming);
  return naming.agrees;
}

}  // namespace vgpu::driver
