#!/bin/bash
# vgpu-watch on a real Slurm: whoever gets around the library is found and, with audit=kill, ended; who keeps to the limit is not. It is
# there whenever slurmd is, and nothing but the audit misses it when it is gone.
. "$(dirname "$0")/spank_lib.sh"
[ -e "$build/libvgpu/libvgpu.so" ] || { echo "skipped: libvgpu.so was not built" && exit 77; }
cp "$build/libvgpu/libvgpu.so" libvgpu.so
client=$work/client
cp "$build/simgpu/simgpu-client" "$client"
chmod 755 "$client" libvgpu.so
watch=$build/utils/vgpu-watch/vgpu-watch
site_options="watch=$watch audit=log"

limited="-Q -w n1 --gres=gpu:1 --gpu-mem=1G"
restart() { "$lab" restart-slurmd "$work/lab" n1 >/dev/null && "$lab" wait "$work/lab" n1; }
# The keys are the watcher's from the next start of slurmd on.
configure_watch() {
  configure "watch=$watch" "$@"
  restart
  eventually watches "$*" || complain "vgpu-watch is not told $*" "$(on n1 cat /run/vgpu/.watch)"
}
watcher() { on n1 cut -d' ' -f1 /run/vgpu/.watch 2>/dev/null; }
watches() { on n1 sh -c '[ -d /proc/$(cut -d" " -f1 /run/vgpu/.watch) ] && cat /run/vgpu/.watch' 2>/dev/null | grep -q -- "$1"; }
watchers() { on n1 sh -c 'grep -lx vgpu-watch /proc/[0-9]*/comm 2>/dev/null | wc -l'; }
check_says() { on n1 "$build/utils/vgpuctl/vgpuctl" check 2>&1 | grep -q "$1"; }

# hold SIZE COMMAND...: for a job: the client, started by the command, holds so many MiB until the test goes on or somebody ends it.
cat >hold.sh <<END
size=\$1; shift
"\$@" $client >$work/signs/answers.\$SLURM_JOB_ID < <(printf 'ctx 0\nalloc %d\n' \$((size << 20)); until [ -e $work/signs/go ]; do sleep 0.1; done)
echo "ended \$?"
END
hold="bash $work/hold.sh"
holding() { [ "$(grep -cs '^0' "signs/answers.$1")" = 2 ]; }
# Starts a batch job, sets $job, and waits until it holds what it was told to.
start_holding() {
  job=$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o "$work/out.%j" --wrap="$hold $*")
  eventually holding "$job" || complain "job $job holds nothing" "$(cat "out.$job" "signs/answers.$job")"
}
found() { on n1 cat "/run/vgpu/$1/findings" 2>/dev/null | grep -q -- "$2"; }
says() { grep -qs -- "$2" "out.$1"; }

test_it_runs_whenever_slurmd_does() {
  eventually watches audit=log || complain "nobody watches" "$(on n1 ls -la /run/vgpu)"
  true_that "vgpuctl check says so" check_says 'ok .*vgpu-watch: runs'
  local first
  first=$(watcher)
  restart
  equal "of two with the same keys, who runs" "$first" "$(watcher)"
  on n1 kill -KILL "$first"
  eventually check_says 'warn.*vgpu-watch does not run' || complain "vgpuctl check does not miss it"
  # Limits need no daemon: what a step misses it says in the log, and runs.
  run srun $limited "$rank" --show
  status_is 0
  output_has " limit=$gib "
  output_lacks watch
  true_that "the step's log misses it" eventually logs "vgpu-watch does not run on this node"
  restart
  eventually watches audit=log || complain "nobody watches again"
  configure_watch audit=kill
  eventually one_watcher || complain "there are $(watchers) watchers"
  configure_watch audit=log
}
one_watcher() { [ "$(watchers)" = 1 ]; }
logs() { slurmd_log n1 | grep -q "$1"; }

test_log_names_who_holds_too_much() {
  start_holding 3072 env -u LD_PRELOAD
  local begin=$SECONDS
  eventually found "$job" "holds [0-9.]*[GM]iB of GPU" || complain "nothing was found" "$(on n1 ls "/run/vgpu/$job")"
  true_that "within ten seconds, not $((SECONDS - begin))" [ $((SECONDS - begin)) -le 12 ]
  true_that "it lives" holding "$job"
  let_go
  eventually says "$job" ended
  eventually has_ended "$job"
  true_that "it ended by itself: $(cat "out.$job")" says "$job" "ended 0"
  equal "how often the user is told" 1 "$(grep -c 'vgpu: audit: job .* holds .* but its limit is 1GiB; process [0-9]* (client) holds' "out.$job")"
}

test_kill_ends_them() {
  configure_watch audit=kill
  local way
  for way in "env -u LD_PRELOAD" "env -i" "env -u LD_PRELOAD setsid"; do
    rm -f signs/*
    start_holding 3072 "$way"
    eventually has_ended "$job" || complain "$way: it still runs" "$(cat "out.$job")"
    true_that "$way: the client was ended: $(cat "out.$job")" says "$job" "ended 137"
    true_that "$way: the user is told: $(cat "out.$job")" says "$job" "holds .* but its limit is 1GiB.*killed: [0-9]"
  done
  configure_watch audit=log
}

test_who_keeps_to_the_limit_is_left_alone() {
  configure_watch audit=kill
  start_holding 900 env
  # Three samples and more.
  local first
  first=$(date +%s)
  eventually sampled_since "$first" 12 || complain "nobody samples"
  true_that "it lives" holding "$job"
  equal "what was found" "" "$(on n1 cat "/run/vgpu/$job/findings" 2>/dev/null)"
  let_go
  eventually has_ended "$job"
  equal "what the user was told" "ended 0" "$(grep -v 'vgpu: job' "out.$job")"
  configure_watch audit=log
}
# The history of the job was written so many seconds after that time: what `vgpuctl report` averages comes from here.
sampled_since() { [ "$(on n1 stat -c %Y "/run/vgpu/$job/history" 2>/dev/null || echo 0)" -ge $(($1 + $2)) ]; }

test_books_that_cannot_be_read_are_found() {
  start_holding 100 env
  on n1 chmod 666 "/run/vgpu/$job/usage"
  eventually found "$job" "books that cannot be read" || complain "nothing was found"
  true_that "it lives" holding "$job"
  on n1 chmod 600 "/run/vgpu/$job/usage"
  let_go
  eventually has_ended "$job"
}

test_a_driver_that_hangs_is_waited_for_no_longer_than_it_takes() {
  start_holding 3072 env -u LD_PRELOAD
  on n1 sh -c 'echo "nvmlDeviceGetComputeRunningProcesses* delay 60000" >/run/simgpu/faults'
  local first
  first=$(watcher)
  sleep 8
  on n1 rm -f /run/simgpu/faults
  patience=90 eventually found "$job" "but its limit is 1GiB" || complain "nothing was found afterwards"
  equal "who watches" "$first" "$(watcher)"
  let_go
  eventually has_ended "$job"
}

test_a_step_without_its_daemon_is_still_watched() {
  configure_watch audit=kill
  start_holding 100 env
  let_go
  eventually has_ended "$job"
  rm -f signs/*
  start_holding 3072 env -u LD_PRELOAD
  on n1 sh -c "kill -KILL \$(grep -l '^slurmstepd: .$job\\.' /proc/[0-9]*/cmdline | cut -d/ -f3)"
  eventually nobody_holds || complain "the client outlives its step's daemon and nobody ends it"
  scancel "$job"
  eventually has_ended "$job"
  "$lab" wait "$work/lab" n1
  configure_watch audit=log
}
nobody_holds() { ! on n1 sh -c 'grep -qlx client /proc/[0-9]*/comm 2>/dev/null'; }

# The last one: with control groups, from which nothing escapes.
test_control_groups_tell_whose_a_process_is() {
  site_options="watch=$watch audit=kill"
  start_lab --cgroup
  eventually watches audit=kill
  # Detached from its step, with nothing in its environment, and with a name that is meant for a terminal.
  cp client "$(printf 'x\033[31my')" && chmod 755 x*y
  cat >escape.sh <<END
( exec 3< <(printf 'ctx 0\nalloc %d\n' \$((3 << 30)); sleep infinity)
  env -i setsid -f $work/x*y <&3 >$work/signs/answers.\$SLURM_JOB_ID )
until [ -e $work/signs/go ]; do sleep 0.1; done
END
  job=$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o "$work/out.%j" --wrap="bash $work/escape.sh")
  eventually holding "$job" || complain "job $job holds nothing" "$(cat "out.$job")"
  eventually says "$job" "but its limit is 1GiB" || complain "nothing was found" "$(cat "out.$job")"
  true_that "it was killed: $(cat "out.$job")" says "$job" "process [0-9]* (x?.31my) holds 3.*killed: [0-9]"
  true_that "the watcher is in no step's group" on n1 sh -c "! grep -q job_ /proc/\$(cut -d' ' -f1 /run/vgpu/.watch)/cgroup"
  let_go
  eventually has_ended "$job"
  "$lab" wait "$work/lab" n1 || complain "the node does not come back"
}

start_lab
run_tests "$@"
