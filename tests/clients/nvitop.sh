#!/bin/sh
# nvitop: names, memory and processes, read through NVIDIA's own bindings of NVML.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
packages nvitop nvidia-ml-py psutil
node_lines='count_calls=yes;'
node

look() {
  HOME="$scratch" COLUMNS=120 LINES=60 timeout 60 env -u SIMGPU_LOG \
    "$scratch/venv/bin/python" -m nvitop --once --ascii >"$scratch/out" 2>&1
  status=$?
  cat "$scratch/out"
  expect "nvitop ended well" test $status -eq 0
  expect "two devices" test "$(grep -c 'Client GPU [AB] ' "$scratch/out")" -eq 2
}
hold_context 0
look
expect "the device's memory" grep -q '200.0MiB / 4096MiB' "$scratch/out"
expect "the process is there with its memory" grep -q " $holder C .* 200.0MiB .*simgpu-client" "$scratch/out"

job 1G,512M 50
watch nvitop
look
expect "nothing of a process outside the job" sh -c "! grep ' $holder C ' '$scratch/out'"
let_go
hold_context 0
look
expect "the limit, and what the job uses of it" grep -q '200.0MiB / 1024MiB' "$scratch/out"
expect "of each device" grep -q '0B / 512.0MiB\|0B / 512MiB' "$scratch/out"
expect "and the job's process" grep -q " $holder C .* 200.0MiB .*simgpu-client" "$scratch/out"
let_go
end_job
