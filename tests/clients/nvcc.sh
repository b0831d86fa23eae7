#!/bin/sh
# Programs compiled by nvcc, on our own small runtime: linked with it (-cudart none) and bound to it at start (-cudart shared).
. "$(dirname "$0")/lib.sh"
need nvcc nvidia-cuda-toolkit
nvcc --version | grep -q 'release 13' || skip "nvcc is not of CUDA 13"
node
runtime=$SIMGPU_BUILD/runtime
# The simulator reads images, but does not unpack them.
build() { nvcc -arch=sm_80 --no-compress "$@" "$simgpu/runtime/samples/samples.cu"; }
expect "nvcc -cudart none" build -cudart none -o "$scratch/none" -L"$runtime" -lcudart
expect "nvcc -cudart shared" build -cudart shared -o "$scratch/shared"
LD_LIBRARY_PATH=$runtime:$LD_LIBRARY_PATH
for program in none shared; do
  for sample in malloc async managed graphs events ipc; do
    expect "$program, $sample" timeout 60 "$scratch/$program" $sample
  done
done
expect "all memory is back" nothing_held
