#!/bin/bash
# What the plugin adds to the time of `srun true` in a job with a GPU and a limit: two clusters side by side, one with it and one without, in turns.
#   spank_bench.sh [ROUNDS]     prints a figure for tests/bench/run.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_BUILD:-$PWD}
lab=$here/lab.sh
rounds=${1:-40}
"$lab" check || exit 0
[ -e "$build/spank/spank_vgpu.so" ] || { echo "skipped: the plugin was not built" && exit 0; }

work=$(mktemp -d /tmp/vbench-XXXXXX) || exit 1
chmod 755 "$work"
trap '"$lab" stop "$work/with"; "$lab" stop "$work/without"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
library=$work/libvgpu.so
cp "$build/libvgpu/libvgpu.so" "$library" 2>/dev/null || gcc -shared -fPIC -x c -o "$library" /dev/null || exit 1
simgpu=(--owner $$ --simgpu "$build/simgpu" --simgpu-config 'memory=8GiB;device;device' --conf SlurmdDebug=info)
"$lab" start "$work/without" "${simgpu[@]}" || exit 1
"$lab" start "$work/with" "${simgpu[@]}" \
  --plugstack "required $build/spank/spank_vgpu.so library=$library probe=$build/utils/vgpu-probe/vgpu-probe state=off" || exit 1

# Microseconds of one srun.
measure() {
  local start=${EPOCHREALTIME/./}
  SLURM_CONF=$work/$1/etc/slurm.conf srun -Q -w n1 "${@:2}" true || exit 1
  echo $((${EPOCHREALTIME/./} - start))
}

# The median over the rounds of the difference between neighbours in time.
added() {
  local round with without
  measure with --gres=gpu:1 --gpu-mem=1G >/dev/null
  measure without --gres=gpu:1 >/dev/null
  for ((round = 0; round < rounds; round++)); do
    # Who is first changes: the second may profit from the first.
    if ((round % 2)); then
      with=$(measure with --gres=gpu:1 --gpu-mem=1G) && without=$(measure without --gres=gpu:1) || exit 1
    else
      without=$(measure without --gres=gpu:1) && with=$(measure with --gres=gpu:1 --gpu-mem=1G) || exit 1
    fi
    echo "$((with - without)) $without"
  done | sort -n | awk '
    { difference[NR] = $1; base += $2 }
    END {
      value = (difference[int((NR + 1) / 2)] + difference[int(NR / 2) + 1]) / 2000
      printf "spank.srun_added_ms\t%.4g\tms\t20\t%s\n", value, value <= 20 ? "ok" : "short"
      printf "  (srun without the plugin: %.0f ms on average)\n", base / NR / 1000
    }'
}

added
