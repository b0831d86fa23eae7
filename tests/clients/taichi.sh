#!/bin/sh
# taichi: fields, arrays, kernels that LLVM compiles to PTX.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages taichi numpy colorama dill rich Pygments markdown-it-py mdurl
export ENABLE_TAICHI_HEADER_PRINT=0
node
checks() { works taichi_client.py work; }
both_ways checks
under_limit taichi taichi_client.py 1G 400
