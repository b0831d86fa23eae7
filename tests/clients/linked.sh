#!/bin/sh
# A program linked with -lcuda, as both drivers: what it sees and gets is the limit.
. "$(dirname "$0")/lib.sh"

ask() { # ORDERS
  printf '%b' "$1" | timeout 60 "$SIMGPU_BUILD/simgpu-client" >"$scratch/out" 2>"$scratch/err"
  sed 's/^\([0-9]*\) [0-9]*$/\1/' "$scratch/out"  # without addresses
  cat "$scratch/err"
}
answers() { cut -d ' ' -f 1 "$scratch/out" | tr '\n' ' '; }
MiB=$((1 << 20))

fill() {
  ask "ctx 0\ninfo\nalloc $((3000 * MiB))\nalloc $((1000 * MiB))\nmodule\ninfo\n"
  expect "what does not fit is refused" test "$(answers)" = "0 0 0 2 0 0 "
}
for level in 13.0 535; do
  node $level
  both_ways fill

  job 1G
  ask "ctx 0\ninfo\nalloc $((900 * MiB))\nalloc $((100 * MiB))\ninfo\nctx 1\ninfo\nalloc $((900 * MiB))\n"
  expect "each device has its limit" test "$(answers)" = "0 0 0 2 0 0 0 0 "
  expect "which is what there is" test "$(grep -c "^0 $((924 * MiB)) $((1024 * MiB))$" "$scratch/out")" -eq 2
  expect "less what was had" grep -qx "0 $((24 * MiB)) $((1024 * MiB))" "$scratch/out"
  expect "libvgpu says why, once" refused_once "$scratch/err"
  end_job
done
