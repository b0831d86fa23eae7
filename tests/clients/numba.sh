#!/bin/sh
# numba: device arrays, a module from PTX, a launch, managed and pinned memory, streams and events. As a driver of the 535
# series, because numba 0.56 does not survive 13.0's cuCtxGetDevice_v2.
. "$(dirname "$0")/lib.sh"
/usr/bin/python3 -c 'import numba' 2>/dev/null || skip "numba is not there; install the Debian package python3-numba"
node 535
export NUMBA_CACHE_DIR="$scratch" HOME="$scratch"
timeout 120 /usr/bin/python3 "$clients/numba_client.py" >"$scratch/out" 2>&1
status=$?
cat "$scratch/out"
expect "the program ran" test $status -eq 0
expect "to its end" grep -qx 'numba: all done' "$scratch/out"
