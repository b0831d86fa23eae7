#!/bin/sh
# drjit: arrays, kernels that it writes in PTX, asynchronous allocation from its own cache.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages drjit numpy
node
checks() { works drjit_client.py work; }
both_ways checks
under_limit drjit drjit_client.py 1G 400
