// An object with a name that others have too, and with questions to the loader that depend on who asks.
// SCOPE_NAME says which one it is.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>

#include <cstdio>

#define STRING(name) #name
#define IN_QUOTES(name) STRING(name)

extern "C" const char *scope_name() { return IN_QUOTES(SCOPE_NAME); }

#ifdef SCOPE_ASKS

extern "C" const char *scope_only_below();

namespace {

void say(const char *question, void *function) {
  const char *error = dlerror();
  std::printf("%s %s: %s\n", IN_QUOTES(SCOPE_NAME), question,
              function != nullptr ? reinterpret_cast<const char *(*)()>(function)() : error);
}

void open(const char *name) {
  void *object = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  say(name, object != nullptr ? dlsym(object, "scope_name") : nullptr);
}

}  // namespace

extern "C" int plugin_start() {
  std::printf("%s below: %s\n", scope_name(), scope_only_below());
  say("next", dlsym(RTLD_NEXT, "scope_name"));
  say("default", dlsym(RTLD_DEFAULT, "scope_name"));
  say("own scope", dlsym(RTLD_DEFAULT, "scope_only_below"));
  say("nowhere", dlsym(RTLD_DEFAULT, "scope_nowhere"));
  say("next version", dlvsym(RTLD_NEXT, "scope_name", "NO_SUCH_VERSION"));
  open("libscope_beside.so");          // by this object's RUNPATH
  open("$ORIGIN/libscope_beside.so");  // from where this object is
  open("libscope_missing.so");
  return 0;
}

#else

extern "C" const char *scope_only_below() { return "only " IN_QUOTES(SCOPE_NAME); }

#endif
