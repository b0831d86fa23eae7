// Asks for functions in every way and prints who answers: the object and the symbol at the address.
//
//   answers SCOPE NAME...            SCOPE: none (the driver is not opened), local, global
//   answers versions NAME...         cuGetProcAddress and _v2, every version and flag
//   answers newest NAME...           the same, newest version
// "@FILE" stands for the names in a file, one a line.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

std::string whose(void *pointer) {
  Dl_info info;
  if (pointer == nullptr) return "nobody";
  if (dladdr(pointer, &info) == 0) return "unknown";
  const char *slash = std::strrchr(info.dli_fname, '/');
  const std::string object = slash != nullptr ? slash + 1 : info.dli_fname;
  return object + ":" + (info.dli_saddr == pointer && info.dli_sname != nullptr ? info.dli_sname : "?");
}

void print(const std::string &question, void *pointer) {
  // An error must be there exactly when there is no answer.
  const char *error = dlerror();
  std::printf("%s %s%s\n", question.c_str(), whose(pointer).c_str(), error != nullptr ? " error" : "");
}

void ask_loader(void *library, const std::string &name) {
  const char *text = name.c_str();
  if (library != nullptr) {
    print("dlsym " + name, dlsym(library, text));
    print("dlvsym " + name, dlvsym(library, text, "NO_SUCH_VERSION"));
  }
  print("default " + name, dlsym(RTLD_DEFAULT, text));
  print("next " + name, dlsym(RTLD_NEXT, text));
  print("self " + name, dlsym(dlopen(nullptr, RTLD_NOW), text));
  // A version that nobody has, and that of tests/libvgpu/versioned.
  for (const char *version : {"NO_SUCH_VERSION", "PRELOAD_TEST_1"}) {
    const std::string question = " " + name + "@" + version;
    print("default" + question, dlvsym(RTLD_DEFAULT, text, version));
    print("next" + question, dlvsym(RTLD_NEXT, text, version));
    print("self" + question, dlvsym(dlopen(nullptr, RTLD_NOW), text, version));
  }
}

// Every version at which some symbol changed its meaning, and those just before.
constexpr int kVersions[] = {0,     1,     1999,  2000,  2010,  3000,  3010,  3019,  3020,  3999,  4000,  4010,
                             5000,  5050,  6000,  6050,  7000,  7050,  8000,  9000,  10000, 10010, 10020, 11000,
                             11010, 11020, 11030, 11039, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020,
                             12030, 12040, 12049, 12050, 12060, 12080, 12090, 13000, 13010, 99999};

void ask_driver(void *library, const std::string &name, bool every_version) {
  const auto ask = reinterpret_cast<decltype(&cuGetProcAddress)>(dlsym(library, "cuGetProcAddress"));
  const auto ask_v2 = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  for (const int version : kVersions) {
    if (!every_version && version != 13000) continue;
    for (const cuuint64_t flags : {0, 1, 2, 3}) {
      const std::string question = name + " " + std::to_string(version) + " " + std::to_string(flags);
      void *const untouched = reinterpret_cast<void *>(0x1234);
      void *pointer = untouched;
      int result = ask(name.c_str(), &pointer, version, flags);
      std::printf("v1 %s %d %s\n", question.c_str(), result,
                  pointer == untouched ? "untouched" : whose(pointer).c_str());
      pointer = untouched;
      auto status = static_cast<CUdriverProcAddressQueryResult>(77);
      result = ask_v2(name.c_str(), &pointer, version, flags, &status);
      std::printf("v2 %s %d %d %s\n", question.c_str(), result, static_cast<int>(status),
                  pointer == untouched ? "untouched" : whose(pointer).c_str());
      void *again = untouched;
      if (ask_v2(name.c_str(), &again, version, flags, nullptr) != result || again != pointer) {
        std::printf("v2 %s: another answer without a status\n", question.c_str());
      }
    }
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  std::vector<std::string> names;
  for (int i = 2; i < argc; ++i) {
    if (argv[i][0] != '@') {
      names.push_back(argv[i]);
      continue;
    }
    std::ifstream file(argv[i] + 1);
    for (std::string line; std::getline(file, line);) {
      if (!line.empty() && line[0] != '#') names.push_back(line);
    }
  }
  const std::string scope = argv[1];
  void *cuda = nullptr, *nvml = nullptr;
  if (scope != "none") {
    const int mode = RTLD_NOW | (scope == "global" ? RTLD_GLOBAL : RTLD_LOCAL);
    cuda = dlopen("libcuda.so.1", mode);
    nvml = dlopen("libnvidia-ml.so.1", mode);
    if (cuda == nullptr || nvml == nullptr) return 2;
  }
  for (const std::string &name : names) {
    if (scope == "versions" || scope == "newest") {
      ask_driver(cuda, name, scope == "versions");
    } else {
      ask_loader(name.compare(0, 4, "nvml") == 0 ? nvml : cuda, name);
    }
  }
  return 0;
}
