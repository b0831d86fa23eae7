#!/bin/bash
# The tests of the hooks once more, on a device with the latencies, the late loading and the growing local memory of hardware.
# See "profile" in docs/simgpu.md. Runs in the build directory.
set -u
export SIMGPU_WHIMS="profile=hardware"
status=0
for test in hooks_test sharing_test nvml_test; do
  echo "== $test on SIMGPU_WHIMS='$SIMGPU_WHIMS'"
  tests/hooks/"$test" || status=1
done
exit $status
