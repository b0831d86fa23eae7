#!/bin/sh
# numba-cuda: kernels compiled by NVVM and linked by nvJitLink, arrays, managed memory. Without nvidia-cuda-runtime, which it
# does not need: it would refuse this driver (see python.sh), and is left to the protocol on a real one (tests/gpu).
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages numba-cuda numba llvmlite numpy packaging cuda-core cuda-bindings cuda-pathfinder \
  nvidia-cuda-nvcc-cu12 nvidia-cuda-nvrtc-cu12 nvidia-nvjitlink-cu12
node
checks() { works numba_cuda_client.py work; }
both_ways checks
under_limit numba_cuda numba_cuda_client.py 1G 400
