#!/bin/sh
# Programs compiled by nvcc, on our own small runtime: linked with it (-cudart none) and bound to it at start (-cudart shared).
. "$(dirname "$0")/lib.sh"
need nvcc nvidia-cuda-toolkit
nvcc --version | grep -q 'release 13' || skip "nvcc is not of CUDA 13"
node
runtime=$SIMGPU_BUILD/runtime
# The simulator reads images, but does not unpack them.
build_sample() { nvcc -arch=sm_80 --no-compress "$@" "$simgpu/runtime/samples/samples.cu"; }
expect "nvcc -cudart none" build_sample -cudart none -o "$scratch/none" -L"$runtime" -lcudart
expect "nvcc -cudart shared" build_sample -cudart shared -o "$scratch/shared"
LD_LIBRARY_PATH=$runtime:$LD_LIBRARY_PATH
checks() {
  for program in none shared; do
    for sample in malloc async managed graphs events ipc fill; do
      expect "$program, $sample" timeout 60 "$scratch/$program" $sample
    done
  done
  expect "all memory is back" nothing_held
}
both_ways checks

for program in none shared; do
  job 600M
  timeout 60 "$scratch/$program" malloc fill >"$scratch/out" 2>"$scratch/err"
  status=$?
  cat "$scratch/out" "$scratch/err"
  expect "$program, under a limit" test $status -eq 0
  expect "it saw the limit" grep -qx 'total 600 MiB' "$scratch/out"
  expect "and got what a context and a module leave of it" grep -qx 'filled 448 MiB' "$scratch/out"
  expect "libvgpu says why, once" refused_once "$scratch/err"
  end_job
done
