#!/bin/sh
# OpenMM on its CUDA platform: kernels compiled by NVRTC, many modules, hardly any allocation after its start.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages OpenMM OpenMM-CUDA-12 numpy nvidia-cuda-nvrtc-cu12 nvidia-cufft-cu12
export TMPDIR="$scratch"  # where it keeps what it compiled
node
checks() { works openmm_client.py work; }
both_ways checks
under_limit openmm openmm_client.py 1G
