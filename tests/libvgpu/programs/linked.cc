// A client that was linked with -lcuda.
#include "steps.h"

int main() { return run_steps({cuInit, cuCtxCreate_v2, cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2}); }
