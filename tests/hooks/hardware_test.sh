#!/bin/bash
# The tests of the hooks once more, on a device with the latencies, the late loading and the growing local memory of hardware.
# See "profile" in docs/simgpu.md. VGPU_CHECK_LEVEL=quick runs a quarter of them, every fourth. Runs in the build directory.
set -u
export SIMGPU_WHIMS="profile=hardware"
[ "${VGPU_CHECK_LEVEL:-}" != quick ] || export GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=0
status=0
for test in hooks_test sharing_test nvml_test; do
  echo "== $test on SIMGPU_WHIMS='$SIMGPU_WHIMS'"
  tests/hooks/"$test" || status=1
done
exit $status
