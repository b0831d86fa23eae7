#!/bin/sh
# numba: device arrays, a module from PTX, a launch, managed and pinned memory, streams and events. As a driver of the 535
# series, because numba 0.56 does not survive 13.0's cuCtxGetDevice_v2.
. "$(dirname "$0")/lib.sh"
/usr/bin/python3 -c 'import numba' 2>/dev/null || skip "numba is not there; install the Debian package python3-numba"
node 535
export NUMBA_CACHE_DIR="$scratch" HOME="$scratch"
run() {
  timeout 120 /usr/bin/python3 "$clients/numba_client.py" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$?
  cat "$scratch/out" "$scratch/err"
  expect "the program ran" test $status -eq 0
}
checks() {
  run
  expect "to its end" grep -qx 'numba: all done' "$scratch/out"
}
both_ways checks

job 300M
checks
expect "it saw the limit" grep -qx 'total 300 MiB' "$scratch/out"
expect "libvgpu says, once, why it did not get a terabyte" refused_once "$scratch/err"
run fill
expect "it got what a context leaves of the limit, again and again" grep -qx 'filled 200 MiB, then 200 MiB' "$scratch/out"
expect "and the driver's own error after that" grep -q 'results in CUDA_ERROR_OUT_OF_MEMORY' "$scratch/out"
expect "libvgpu says why, once" refused_once "$scratch/err"
end_job
