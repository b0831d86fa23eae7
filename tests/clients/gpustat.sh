#!/bin/sh
# gpustat: names, memory and processes, read through pynvml.
. "$(dirname "$0")/lib.sh"
need gpustat gpustat
node
hold_context 0
timeout 60 gpustat --no-color --show-pid --no-header >"$scratch/out" 2>&1
status=$?
cat "$scratch/out"
expect "gpustat ended well" test $status -eq 0
expect "two devices" test "$(grep -c 'Client GPU' "$scratch/out")" -eq 2
expect "the process is there with its memory" grep -q "Client GPU A.*456 / *4096 MB.*/$holder(200M)" "$scratch/out"
expect "and only on its device" sh -c "! grep 'Client GPU B.*$holder' '$scratch/out'"
