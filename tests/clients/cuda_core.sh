#!/bin/sh
# cuda.core, NVIDIA's interface of the driver for Python: streams, events, pools, a kernel from PTX.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages cuda-core cuda-bindings cuda-pathfinder numpy
node
checks() { works cuda_core_client.py work; }
both_ways checks
under_limit cuda_core cuda_core_client.py 1G 400
