#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tables.h"

int main(int argc, char **argv) {
  using namespace tables;
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "machine") return machine();
  if (verb == "books" && argc > 2) return books(argv + 2);
  if (verb == "steps") return steps();
  if (verb == "sizes") return sizes();
  if (verb == "nvml") return nvml_calls();
  if (verb == "moments") return nvml_moments();
  if (verb == "watch" && argc == 3) return nvml_watch(std::atof(argv[2]));
  if (verb == "events") return events();
  if (verb == "growth") return growth();
  if (verb == "share" && argc == 5)
    return share(argv[2], static_cast<unsigned>(std::atoi(argv[3])), std::atof(argv[4]));
  std::fprintf(stderr,
               "usage: gpu_tables machine | sizes | nvml | moments | events | growth | steps | books COMMAND... |\n"
               "                  watch SECONDS | share KERNEL STREAMS SECONDS\n");
  return 2;
}
