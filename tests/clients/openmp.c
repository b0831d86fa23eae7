// Offloads a region and moves data by hand. On the simulated device kernels change nothing; what is looked at is copying.
// With an argument it asks for too much: by "alloc" until there is no more, by "map" in a region's data.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int table[16];
#pragma omp declare target to(table)

static int ask_by_alloc(void) {
  int pieces = 0;
  while (omp_target_alloc(64 << 20, 0) != NULL) ++pieces;
  printf("filled %d MiB\n", pieces * 64);
  return 0;
}

static int ask_by_map(void) {
  const size_t size = 600 << 20;
  char *data = calloc(size, 1);
#pragma omp target map(tofrom : data[:size])
  data[0] = 1;
  free(data);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1) return strcmp(argv[1], "map") == 0 ? ask_by_map() : ask_by_alloc();
  int data[1024], back[1024];
  int device = 0, host = omp_get_initial_device();
  for (int i = 0; i < 1024; i++) data[i] = i * 3;
  printf("devices %d\n", omp_get_num_devices());
  void *memory = omp_target_alloc(1 << 22, device);
  if (memory == NULL) return 1;
  if (omp_target_memcpy(memory, data, sizeof data, 4096, 0, device, host) != 0) return 1;
  if (omp_target_memcpy(back, memory, sizeof back, 0, 4096, host, device) != 0) return 1;
  printf("copied %d\n", memcmp(data, back, sizeof data) == 0);
  omp_target_free(memory, device);
#pragma omp target map(tofrom : data)
  for (int i = 0; i < 1024; i++) data[i] += table[i % 16];
#pragma omp target update from(table)
  printf("region done\n");
  return 0;
}
