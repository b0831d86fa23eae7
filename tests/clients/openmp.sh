#!/bin/sh
# GCC's OpenMP offloading: libgomp's nvptx plugin finds the devices, loads the linked image, checks the sizes of its
# variables, copies data and launches.
. "$(dirname "$0")/lib.sh"
need gcc-12 gcc-12
[ -e /usr/lib/gcc/x86_64-linux-gnu/12/accel/nvptx-none/mkoffload ] || skip "install the Debian package gcc-12-offload-nvptx"
node
# Without the toolkit's ptxas on the path: a recent one refuses the old architecture that GCC 12 writes.
PATH=/usr/bin:/bin gcc-12 -O1 -fopenmp -foffload=nvptx-none -w "$clients/openmp.c" -o "$scratch/openmp" 2>"$scratch/err" || {
  cat "$scratch/err"
  exit 1
}
run() {
  OMP_TARGET_OFFLOAD=MANDATORY timeout 60 "$scratch/openmp" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$?
  cat "$scratch/out" "$scratch/err"
}
checks() {
  run
  expect "the program ran" test $status -eq 0
  expect "two devices" grep -qx 'devices 2' "$scratch/out"
  expect "data came back" grep -qx 'copied 1' "$scratch/out"
  expect "the region ran on the device" grep -qx 'region done' "$scratch/out"
}
both_ways checks

job 512M
checks
run alloc
expect "omp_target_alloc gives up at the limit" grep -qx 'filled 384 MiB' "$scratch/out"
expect "libvgpu says why, once" refused_once "$scratch/err"
run map
expect "a region whose data does not fit ends the program" test $status -ne 0
expect "libgomp says why" grep -q 'libgomp: .*out of memory' "$scratch/err"
expect "libvgpu says why, once" refused_once "$scratch/err"
end_job
