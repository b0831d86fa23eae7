// A program that knows nothing of CUDA and opens a plugin that does.  host PLUGIN [deepbind]
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 2 ? RTLD_DEEPBIND : 0));
  auto *start = plugin != nullptr ? reinterpret_cast<int (*)()>(dlsym(plugin, "plugin_start")) : nullptr;
  if (start == nullptr) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  return start();
}
