#include "resolve.h"

#include <dlfcn.h>

#include "base/early.h"
#include "elf_lookup.h"
#include "flags.h"

namespace vgpu::driver {

std::atomic<void *> real_pointers[kSymbols];

namespace {

using OpenFunction = void *(const char *, int);
using SymbolFunction = void *(void *, const char *);
using VersionFunction = void *(void *, const char *, const char *);
using AddressFunction = int(const void *, Dl_info *);
using ErrorFunction = char *();

constexpr const char *kSonames[] = {"libcuda.so.1", "libnvidia-ml.so.1"};

// A function of the dynamic linker behind our own. Looked up when first needed: glibc before 2.34 keeps them in libdl,
// which may be loaded later than we are.
template <typename Function>
class Loader {
 public:
  explicit constexpr Loader(const char *name) : name_(name) {}

  Function *get() {
    void *found = pointer_.load(std::memory_order_relaxed);
    if (found == nullptr) {
      found = next_definition(name_);
      pointer_.store(found, std::memory_order_relaxed);  // whoever looks finds the same
    }
    return reinterpret_cast<Function *>(found);
  }

 private:
  const char *name_;
  std::atomic<void *> pointer_{nullptr};
};

constinit Loader<OpenFunction> next_dlopen("dlopen");
constinit Loader<SymbolFunction> next_dlsym("dlsym");
constinit Loader<VersionFunction> next_dlvsym("dlvsym");
constinit Loader<AddressFunction> next_dladdr("dladdr");
constinit Loader<ErrorFunction> next_dlerror("dlerror");

// Our own questions must not show in the program's dlerror().
void forget_errors() {
  if (ErrorFunction *error = next_dlerror.get()) error();
}

Choice answer(void *value) { return {value, 1}; }

template <typename Function>
Choice jump(Function *to) {
  // Without a real function to jump to there is nothing a program could have loaded either.
  return {reinterpret_cast<void *>(to), to == nullptr};
}

int find_hook(const char *name) {
  if (name == nullptr || !(starts_with(name, "cu") || starts_with(name, "nvml"))) return -1;
  for (unsigned i = 0; i < kSymbols; ++i) {
    if (kSymbolRows[i].hook != nullptr && same_text(kSymbolRows[i].symbol, name)) return static_cast<int>(i);
  }
  return -1;
}

bool is_one_of_ours(const void *address) {
  for (const SymbolRow &row : kSymbolRows) {
    if (row.hook == address) return address != nullptr;
  }
  return false;
}

bool describe(const void *address, Dl_info *info) {
  AddressFunction *dladdr_function = next_dladdr.get();
  return dladdr_function != nullptr && dladdr_function(address, info) != 0;
}

// Whether the code at `address` is the library's own, not another tool's wrapper of the same name. A program may have
// opened it by any path.
bool belongs_to(Library library, const void *address) {
  return has_soname(address, kSonames[static_cast<unsigned>(library)]);
}

void *pinned(Library library) {
  // NODELETE: a program that closes the library and opens it again must not leave us with dangling pointers.
  return loader_open(kSonames[static_cast<unsigned>(library)], RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void remember(unsigned row, void *real) {
  void *none = nullptr;
  if (real_pointers[row].load(std::memory_order_relaxed) != nullptr) return;
  pinned(kSymbolRows[row].library);
  real_pointers[row].compare_exchange_strong(none, real, std::memory_order_relaxed);
  forget_errors();
}

// What the global scope has behind us. We stand there even where there is no driver, or only one that was opened for
// somebody's own use: then we must not be seen. Null sets dlerror.
void *behind_us(unsigned row) { return loader_symbol(RTLD_NEXT, kSymbolRows[row].symbol); }

bool is_in_global_scope(Library library) {
  for (unsigned row = 0; row < kSymbols; ++row) {
    void *found = kSymbolRows[row].library == library ? behind_us(row) : nullptr;
    if (found != nullptr && belongs_to(library, found)) return true;
  }
  return false;
}

// Whether programs of this process are given our hook.
bool is_in_force(const SymbolRow &row) {
  return region_is_expected() && row.hook != nullptr && (!row.metered || launches_are_metered());
}

Choice hook_or(unsigned row, void *real) {
  if (!is_in_force(kSymbolRows[row])) return answer(real);
  remember(row, real);
  return answer(kSymbolRows[row].hook);
}

// The answer where the loader `found` this: our hook, if it stands for that.
Choice choose(unsigned row, void *found, bool in_global_scope) {
  if (!is_one_of_ours(found)) {
    return belongs_to(kSymbolRows[row].library, found) ? hook_or(row, found) : answer(found);
  }
  void *real = behind_us(row);
  if (real == nullptr && !in_global_scope) real = find_real(static_cast<Symbol>(row));
  return real != nullptr ? hook_or(row, real) : answer(behind_us(row));
}

// An interposer before us that asks for a version skips our unversioned functions; to it, the next ones are ours.
void *ours_if_skipped(const char *name, const void *caller) {
  if (name == nullptr || !starts_with(name, "dl")) return nullptr;
  void *ours = same_text(name, "dlsym")    ? reinterpret_cast<void *>(&dlsym)
               : same_text(name, "dlvsym") ? reinterpret_cast<void *>(&dlvsym)
               : same_text(name, "dlopen") ? reinterpret_cast<void *>(&dlopen)
                                           : nullptr;
  return ours != nullptr && precedes_us(caller) ? ours : nullptr;
}

}  // namespace

void *loader_open(const char *name, int mode) {
  OpenFunction *open = next_dlopen.get();
  return open != nullptr ? open(name, mode) : nullptr;
}

void *loader_symbol(void *handle, const char *name) {
  SymbolFunction *symbol = next_dlsym.get();
  return symbol != nullptr ? symbol(handle, name) : nullptr;
}

void *find_real(Symbol symbol) {
  const auto wanted = static_cast<unsigned>(symbol);
  const Library library = kSymbolRows[wanted].library;
  void *handle = pinned(library);
  const bool shared = is_in_global_scope(library);
  for (unsigned row = 0; row < kSymbols; ++row) {
    if (kSymbolRows[row].library != library) continue;
    // Whoever stands between us and the library in the global scope has a right to be called; if the library is not
    // there, they could not call it.
    void *real = shared ? behind_us(row) : nullptr;
    if (real == nullptr && handle != nullptr) real = loader_symbol(handle, kSymbolRows[row].symbol);
    void *none = nullptr;
    if (real != nullptr) real_pointers[row].compare_exchange_strong(none, real, std::memory_order_relaxed);
  }
  forget_errors();
  return real_pointers[wanted].load(std::memory_order_relaxed);
}

void *hook_for(void *driver_pointer, const char *name, int version, std::uint64_t flags) {
  const SymbolRow *asked = nullptr;  // what the question means, if the table is right
  const DefaultStream stream =
      (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 ? DefaultStream::per_thread : DefaultStream::legacy;
  bool known_name = false;
  for (unsigned i = 0; i < kSymbols; ++i) {
    const SymbolRow &row = kSymbolRows[i];
    if (row.name == nullptr || !same_text(row.name, name)) continue;
    if (!is_in_force(row)) return driver_pointer;
    if (real_pointer(static_cast<Symbol>(i)) == driver_pointer) return row.hook;
    known_name = true;
    if (row.since > version || (row.stream == DefaultStream::per_thread && stream == DefaultStream::legacy)) continue;
    const bool better = asked == nullptr || (row.stream == stream && asked->stream != stream) ||
                        (row.stream == asked->stream && row.since > asked->since);
    if (better) asked = &row;
  }
  if (!known_name) return driver_pointer;

  // The driver returned what none of its exports is that we know by this name. If it is an export, its symbol says
  // which (a wrapper in the global scope may have our place for it, or it is newer than we are); if not, the question.
  Dl_info info;
  if (describe(driver_pointer, &info) && info.dli_saddr == driver_pointer && info.dli_sname != nullptr) {
    const int row = find_hook(info.dli_sname);
    return row >= 0 ? kSymbolRows[row].hook : driver_pointer;
  }
  return asked != nullptr ? asked->hook : driver_pointer;
}

}  // namespace vgpu::driver

using namespace vgpu;
using namespace vgpu::driver;

Choice vgpu_choose_dlsym(void *handle, const char *name, const void *caller) {
  SymbolFunction *real = next_dlsym.get();
  if (real == nullptr) return jump(real);
  if (handle != RTLD_DEFAULT && handle != RTLD_NEXT && region_is_expected()) {
    if (void *ours = ours_if_skipped(name, caller)) return answer(ours);
  }
  const int row = find_hook(name);
  if (row < 0) return jump(real);
  if (handle == RTLD_NEXT) {
    const bool next_is_us = precedes_us(caller) && is_one_of_ours(real(RTLD_DEFAULT, name));
    return next_is_us ? choose(static_cast<unsigned>(row), kSymbolRows[row].hook, true) : jump(real);
  }
  void *found = real(handle, name);
  if (found == nullptr) return answer(nullptr);
  // A plugin's own scope may have what the global one has not, and by default both are searched.
  return choose(static_cast<unsigned>(row), found, handle != RTLD_DEFAULT || in_main_program(caller));
}

Choice vgpu_choose_dlvsym(void *handle, const char *name, const char *version, const void *caller) {
  VersionFunction *real = next_dlvsym.get();
  if (real == nullptr || !region_is_expected()) return jump(real);
  if (void *ours = ours_if_skipped(name, caller))
    return real(RTLD_NEXT, name, version) ? answer(ours) : answer(nullptr);
  const int row = find_hook(name);
  if (row < 0 || (handle == RTLD_NEXT && !precedes_us(caller))) return jump(real);
  void *found = real(handle == RTLD_NEXT ? RTLD_DEFAULT : handle, name, version);
  // Ours have no version. A loader that takes that for any version has found them nevertheless: the driver's decides.
  if (is_one_of_ours(found)) found = real(RTLD_NEXT, name, version);
  if (found == nullptr) return answer(nullptr);
  // The first that has it may be the caller, who asks for the next.
  if (handle == RTLD_NEXT && !belongs_to(kSymbolRows[row].library, found)) return jump(real);
  return choose(static_cast<unsigned>(row), found, true);
}

Choice vgpu_choose_dlopen(const char *, int) {
  // A plugin opened with RTLD_DEEPBIND would find the driver's functions before ours.
  const std::uintptr_t kept = region_is_expected() ? ~std::uintptr_t{RTLD_DEEPBIND} : ~std::uintptr_t{0};
  return {reinterpret_cast<void *>(next_dlopen.get()), kept};
}
