#!/bin/sh
# pycuda: memory, a pool of its own, a module from PTX, events. The registry has it as source alone so far, which is not built here.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages pycuda numpy pytools platformdirs typing_extensions siphash24 Mako MarkupSafe
node
checks() { works pycuda_client.py work; }
both_ways checks
under_limit pycuda pycuda_client.py 1G 400
