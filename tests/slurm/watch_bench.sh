#!/bin/bash
# What vgpu-watch costs on a node with 8 jobs of 8 processes, and how soon it finds who gets around the library.
#   watch_bench.sh [SECONDS]     how long it is watched itself (30); prints figures for tests/bench/run.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_BUILD:-$PWD}
lab=$here/lab.sh
seconds=${1:-30}
"$lab" check || exit 0
[ -e "$build/spank/spank_vgpu.so" ] || { echo "skipped: the plugin was not built" && exit 0; }

work=$(mktemp -d /tmp/vbench-XXXXXX) || exit 1
chmod 755 "$work"
trap '"$lab" stop "$work/lab"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cp "$build/libvgpu/libvgpu.so" "$build/simgpu/simgpu-client" "$work" || exit 1
"$lab" start "$work/lab" --owner $$ --nodes 1 --cpus 128 --shards 64 --simgpu "$build/simgpu" --conf SlurmdDebug=info \
  --simgpu-config 'memory=64GiB;context=64MiB;reserved=0;visibility_ms=0;device;device' \
  --plugstack "required $build/spank/spank_vgpu.so library=$work/libvgpu.so probe=$build/utils/vgpu-probe/vgpu-probe state=off \
watch=$build/utils/vgpu-watch/vgpu-watch audit=log" || exit 1
eval "$("$lab" env "$work/lab")"
export SLURM_CONF
on() { "$lab" node "$work/lab" n1 -- "$@"; }
eventually() {
  local deadline=$((SECONDS + 60))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { echo "watch_bench.sh: not within 60 s: $*" >&2 && exit 1; }
    sleep 0.05
  done
}
figure() { # NAME VALUE UNIT GOAL
  awk -v name="$1" -v value="$2" -v unit="$3" -v goal="$4" \
    'BEGIN { printf "%s\t%.3g\t%s\t%s\t%s\n", name, value, unit, goal, value <= goal ? "ok" : "short" }'
}

cat >"$work/hold.sh" <<END
# The first of a job's tasks may be told to do without the library.
[ "\$SLURM_PROCID" != 0 ] || [ -z "\$CHEAT" ] || unset LD_PRELOAD
exec $work/simgpu-client >$work/answers.\$SLURM_JOB_ID.\$SLURM_PROCID < <(printf 'ctx 0\nalloc %d\n' \$((\$1 << 20)); sleep infinity)
END
ready() { [ "$(cat "$work"/answers.* 2>/dev/null | grep -c '^0')" = "$1" ]; }
for job in 1 2 3 4 5 6 7 8; do
  sbatch -Q -n 8 --mem=50 --gres=shard:1 --gpu-mem=4G -o /dev/null --wrap="srun -n 8 --overcommit bash $work/hold.sh 300" || exit 1
done
eventually ready 128
watcher=$(on cut -d' ' -f1 /run/vgpu/.watch)
# Nanoseconds of processor time: its own, that of its probe, and of children that have ended (in ticks of 10 ms).
used() {
  on sh -c "cat /proc/$watcher/schedstat /proc/\$(cat /proc/$watcher/task/$watcher/children | tr -d ' ')/schedstat | cut -d' ' -f1; cut -d' ' -f16-17 /proc/$watcher/stat" |
    awk 'NF == 1 { sum += $1 } NF == 2 { sum += ($1 + $2) * 1e7 } END { printf "%.0f\n", sum }'
}
has_probe() { [ -n "$(on cat "/proc/$watcher/task/$watcher/children")" ]; }
eventually has_probe
sleep 10
before=$(used) start=${EPOCHREALTIME/./}
sleep "$seconds"
spent=$(($(used) - before)) elapsed=$((${EPOCHREALTIME/./} - start))
figure watch.cpu_percent "$(awk "BEGIN { print $spent / $elapsed / 10 }")" % 0.2
rss() { on sh -c "cat /proc/$watcher/status /proc/\$(cat /proc/$watcher/task/$watcher/children | tr -d ' ')/status" | awk '/^VmRSS/ { print $2 }'; }
figure watch.rss_mib "$(rss | awk '{ sum += $1 } END { print sum / 1024 }')" MiB 8
rss | awk '{ printf "  (%s %.1f MiB)\n", NR == 1 ? "vgpu-watch" : "its vgpu-probe", $1 / 1024 }'

# From the answer of the driver to the finding, at the worst of a few moments between two samples.
worst=0
for round in 1 2 3; do
  job=$(CHEAT=yes sbatch --parsable -n 1 --mem=50 --gres=shard:1 --gpu-mem=1G -o /dev/null --wrap="sleep 0.$round; srun -n 1 --overcommit bash $work/hold.sh 3072")
  holds() { [ "$(grep -cs '^0' "$work/answers.$job.0")" = 2 ]; }
  eventually holds
  start=${EPOCHREALTIME/./}
  eventually on grep -qs 'but its limit is' "/run/vgpu/$job/findings"
  elapsed=$((${EPOCHREALTIME/./} - start))
  [ $elapsed -le $worst ] || worst=$elapsed
  scancel "$job"
done
figure watch.detect_s "$(awk "BEGIN { print $worst / 1e6 }")" s 10
scancel --state=running 2>/dev/null
exit 0
