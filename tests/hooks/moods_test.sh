#!/bin/bash
# The job stays below its limit, and nothing hangs or crashes, whatever NVML says: it changes its mind with every call. Tests
# that compare figures of NVML's to the byte cannot run like this. VGPU_WHIM_SEED repeats a run. VGPU_CHECK_LEVEL=quick makes
# it short. Runs in the build directory.
set -u
seed=${VGPU_WHIM_SEED:-$((RANDOM + 1))}
export SIMGPU_WHIMS="profile=hardware; nvml_seed=$seed; nvml_time=1ms..3ms"
[ "${VGPU_CHECK_LEVEL:-}" != quick ] || VGPU_STRESS_SECONDS=2
export VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-5}
failed=
for test in stress_test threads_test; do
  echo "== $test with VGPU_WHIM_SEED=$seed"
  tests/hooks/"$test" || failed="$failed $test"
done
[ -z "$failed" ] && exit
echo "FAILED:$failed with VGPU_WHIM_SEED=$seed"
exit 1
