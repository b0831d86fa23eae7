#!/bin/sh
# What a job sees of the driver at hand, as far as it shows without that driver's books. `make check` runs this on the
# simulated GPU; `./check.sh --gpu` sets VGPU_GPU=real and runs it on the machine's own.
. "$(dirname "$0")/../clients/lib.sh"
MiB=$((1 << 20))

if [ "${VGPU_GPU:-}" = real ]; then
  SIMGPU_BUILD=$PWD/simgpu
else
  node
fi
build=$(cd "$SIMGPU_BUILD/.." && pwd)
client=$build/tests/hooks/hooks_client
[ -x "$client" ] || skip "hooks_client is not built; it needs the headers of CUDA 13 and NVML"

# in_job SIZE: a client in a job, with the orders of standard input; its answers are in $scratch/out.
in_job() {
  XDG_RUNTIME_DIR=$scratch timeout 120 "$build/utils/vgpu-run/vgpu-run" --gpu-mem="$1" -- "$client" \
    >"$scratch/out" 2>"$scratch/err"
  cat "$scratch/out" "$scratch/err"
}
line() { sed -n "$1p" "$scratch/out"; }
result() { line "$1" | cut -d ' ' -f 1; }
value() { line "$1" | cut -d ' ' -f "$(($2 + 1))"; }

in_job 1G <<END
init
total 0
make cuCtxCreate_v2 0
info
make cuMemAlloc_v2 $((256 * MiB))
info
make cuMemAlloc_v2 $((1024 * MiB))
info
nvml init
nvml 0
END
expect "the driver works" test "$(result 1) $(result 3) $(result 5)" = "0 0 0"
expect "the GPU is as large as the limit" test "$(value 2 1)" = $((1024 * MiB))
expect "and so it is for cuMemGetInfo" test "$(value 4 2)" = $((1024 * MiB))
expect "the context counts" test "$(value 4 1)" -lt $((1024 * MiB))
expect "an allocation takes what it is" test $(($(value 4 1) - $(value 6 1))) -ge $((256 * MiB))
expect "more than the limit is refused" test "$(result 7)" = 2
expect "and takes nothing" test "$(value 8 1)" = "$(value 6 1)"
expect "with one line" test "$(grep -c 'out of memory' "$scratch/err")" = 1
expect "NVML shows the limit too" test "$(value 10 2)" = $((1024 * MiB))

# Two ranks with a context each, and room for one allocation between them. Each stays until both have asked.
cat >"$scratch/orders" <<END
init
make cuCtxCreate_v2 0
make cuMemAlloc_v2 $((1100 * MiB))
END
XDG_RUNTIME_DIR=$scratch timeout 120 "$build/utils/vgpu-run/vgpu-run" -n 2 --gpu-mem=2G -- sh -c '
  { cat "$1/orders"; until [ "$(cat "$1"/rank.* | wc -l)" -ge 6 ]; do sleep 0.1; done; } | "$0" >"$1/rank.$$"' \
  "$client" "$scratch" 2>"$scratch/err"
cat "$scratch"/rank.* "$scratch/err"
expect "ranks share the limit" test "$(cat "$scratch"/rank.* | grep -c '^2')" = 1
expect "and the one without says who has it" grep -q 'held by .*pid.*, .*pid' "$scratch/err"
