// Opens plugins that ask the loader what depends on who asks, and asks the same itself.  scopes PLUGIN...
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) const char *scope_name() { return "program"; }

int main(int argc, char **argv) {
  std::printf("program's getpid: %d\n", dlsym(RTLD_NEXT, "getpid") == dlsym(RTLD_DEFAULT, "getpid"));
  std::printf("program's scope_name: %d\n", dlsym(RTLD_DEFAULT, "scope_name") == reinterpret_cast<void *>(&scope_name));
  std::printf("program's next: %d\n", dlsym(RTLD_NEXT, "scope_name") == nullptr);
  std::printf("%s\n", dlerror());
  std::printf("program's open: %d\n", dlopen("libscope_beside.so", RTLD_NOW) == nullptr);
  std::printf("%s\n", dlerror());
  for (int i = 1; i < argc; ++i) {
    void *plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      std::printf("%s\n", dlerror());
      return 2;
    }
    reinterpret_cast<int (*)()>(dlsym(plugin, "plugin_start"))();
  }
  return 0;
}
