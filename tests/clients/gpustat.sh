#!/bin/sh
# gpustat: names, memory and processes, read through pynvml.
. "$(dirname "$0")/lib.sh"
need gpustat gpustat
node

look() {
  timeout 60 gpustat --no-color --show-pid --no-header >"$scratch/out" 2>&1
  status=$?
  sed "s,/$holder(,/HOLDER(," "$scratch/out"
  expect "gpustat ended well" test $status -eq 0
  expect "two devices" test "$(grep -c 'Client GPU' "$scratch/out")" -eq 2
}
# A process of the job: those of others are not to be seen there.
checks() {
  hold_context 0
  look
  expect "the process is there with its memory" grep -q "Client GPU A.*456 / *4096 MB.*/$holder(200M)" "$scratch/out"
  expect "and only on its device" sh -c "! grep 'Client GPU B.*$holder' '$scratch/out'"
  let_go
}
both_ways checks

hold_context 0
job 1G,512M
look
expect "nothing of a process outside the job" sh -c "! grep '$holder' '$scratch/out'"
let_go
hold_context 0
look
expect "the limit, and what the job uses of it" grep -q 'Client GPU A.* 200 / *1024 MB' "$scratch/out"
expect "of each device" grep -q 'Client GPU B.* 0 / *512 MB' "$scratch/out"
let_go
end_job

# An NVML that fails: gpustat shows what it can, or says what is wrong.
job 1G,512M
SIMGPU_FAULTS='nvmlDeviceGetMemoryInfo* fail 15' timeout 60 gpustat --no-color >"$scratch/out" 2>&1
status=$?
cat "$scratch/out"
expect "gpustat ended well" test $status -eq 0
expect "and knows all but the memory" test "$(grep -c 'Client GPU . |.*| *?? / *?? MB' "$scratch/out")" -eq 2
SIMGPU_FAULTS='nvmlInit* fail 9' timeout 60 gpustat --no-color >"$scratch/out" 2>&1
status=$?
cat "$scratch/out"
expect "without a driver it fails by itself" test $status -ne 0 -a $status -lt 124
end_job
