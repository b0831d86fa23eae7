#!/bin/sh
# tinygrad: tensors, kernels that it writes in PTX, graphs.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages tinygrad numpy
export DEV=CUDA:PTX CACHEDB="$scratch/cache.db"
node
checks() { works tinygrad_client.py work; }
both_ways checks
under_limit tinygrad tinygrad_client.py 1G 400
