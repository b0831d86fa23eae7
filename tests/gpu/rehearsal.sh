#!/bin/bash
# The protocol of ./check.sh --gpu, from end to end, on a simulated GPU that has the whims of hardware. What needs NVIDIA's own
# runtime must say that it was not run; everything else must have measured something.
. "$(dirname "$0")/../clients/lib.sh"
# As someone whose names must not show.
export HOME=$scratch/home/verysecretperson
mkdir -p "$HOME" "$scratch/out"
node
# Larger than what other clients get, with processes that are shown late, and silent.
"$SIMGPU_BUILD/simgpu-ctl" stop
SIMGPU_CONFIG='profile=hardware; memory=16GiB'
unset SIMGPU_LOG
build=$(cd "$SIMGPU_BUILD/.." && pwd)
[ -x "$build/tests/gpu/gpu_tables" ] || skip "gpu_tables is not built; it needs the headers of CUDA 13 and NVML"

TMPDIR=$scratch "$clients/protocol.sh" --build "$build" --out "$scratch/out" --simulated
report=$(echo "$scratch"/out/vgpu-gpu-report-*.txt)
cat "$report" || fail "there is no report"

# result SECTION: as the summary has it
result() { sed -n "s/^$1  *\(ok\|failed\|not run\) .*/\1/p" "$report" | head -n 1; }
in_section() { sed -n "/^== $1:/,/^== /p" "$report"; }
rows() { in_section "$1" | grep -cE -- "$2"; }

for section in machine limit books sizes nvml events; do
  expect "$section" test "$(result $section)" = ok
done
for section in runtime applications; do
  expect "$section is rehearsed" test "$(result $section)" = "not run"
done
# What it finds is tested elsewhere, on a machine that does nothing else.
expect shares grep -qxE 'ok|failed' <(result shares)
expect "the driver's name" grep -q '^driver  *580' "$report"
expect "a refusal in the books" grep -qE '^malloc 1 TiB .* as expected$' "$report"
expect "nothing was left by the program in the books" grep -qE '^exit  *\+0\.0$' "$report"
expect "books of every step" test "$(rows books '(as expected|CUDA_ERROR_[A-Z_]*)$')" -ge 27
expect "blocks of 2 MiB are seen" grep -qE '^4 KiB  *1536 .* 2 MiB  ' "$report"
expect "and said in a sentence" grep -q '^sizes .*blocks of 2 MiB, shared by pieces of up to 1 MiB;' "$report"
expect "NVML lists us by our PID" grep -q '^nvml .* we are listed as getpid(); memory v2: used is without reserved;' "$report"
expect "and late" grep -qE 'the process is listed  *[1-9][0-9.]* ms' "$report"
expect "local memory comes with a launch" grep -qE '^launch with 2 KiB of local memory  *[0-9]+  *\+160\.0' "$report"
expect "events in three ways" test "$(rows events '^cuEventRecord .*( +[0-9.]+){3}$')" -ge 1
expect "four programs, four shares each" test "$(rows shares '^kernels of .*( +[0-9.]+ \([0-9.]+\)){4}$')" = 4
expect "nobody's name" test "$(grep -cE 'verysecretperson|GPU-[0-9a-f]{8}-' "$report")" = 0
expect "nor the host's" test "$(grep -cw "on $(uname -n)" "$report")" = 0
expect "nor a path" test "$(grep -cF -e "$scratch" -e "$build" "$report")" = 0
