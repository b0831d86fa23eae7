# Sourced by the tests of the plugin. A test is a function test_NAME; they run in the order in which they are written, each
# prints GoogleTest's lines, so that check.sh counts it, and fails when an expectation does. `spank_X_test.sh PATTERN` runs
# those whose names match.
#
#   start_lab OPTION...     (of lab.sh) a cluster with the plugin
#   configure KEY=VALUE...  the plugin's keys in plugstack.conf
#   run COMMAND...          at most 120 s; sets $output (stdout and stderr) and $status
#   run_batch OPTION...     `run sbatch --wait`, which would look at the job every two seconds only
#   status_is N, output_has TEXT, output_lacks TEXT, equal WHAT EXPECTED ACTUAL, true_that WHAT COMMAND...
#   on NODE COMMAND...      on a node, as root
#   $games COMMAND...       as another user; so is $man
#   eventually COMMAND...   repeats it for at most $patience seconds until it succeeds
#   regions NODE            the job ids that have anything in the region directory
#   $hold_on                for the command of a job, of any user: says that it runs, and waits until it may go on
#   holds JOB               that it has come there;  let_go lets all of a test go on
#
# A test waits for what it wants to see, never for a time: the machine may be busy with other tests.
set -u
unset TMPDIR  # make check has one that other users cannot write to, and srun passes it on
self=$(readlink -f "$0")
here=${self%/*}
build=${VGPU_BUILD:-$PWD}
lab=$here/lab.sh
"$lab" check || exit
plugin=$build/spank/spank_vgpu.so
[ -e "$plugin" ] || { echo "skipped: the plugin was not built; Slurm's headers are missing" && exit 77; }
[ -e "$build/simgpu/13.0/libnvidia-ml.so.1" ] || { echo "skipped: the simulated GPU was not built" && exit 77; }

work=$(mktemp -d /tmp/vspank-XXXXXX) || exit 1
chmod 755 "$work"
trap '"$lab" stop "$work/lab"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1

# Programs that other users run must lie where they can reach them.
cp "$build/tests/slurm/rank" "$work/rank" && chmod 755 "$work/rank" || exit 1
rank=$work/rank
mkdir -m 1777 "$work/signs" || exit 1
hold_on="touch $work/signs/\$SLURM_JOB_ID; until [ -e $work/signs/go ]; do sleep 0.1; done"
holds() { [ -f "$work/signs/$1" ]; }
let_go() { touch "$work/signs/go"; }
gib=$((1 << 30))

# Stands for libvgpu.so where a test looks at variables only: a library that does nothing, and says so when asked.
printf 'int vgpu_stand_in = 1;\n' | ${CC:-gcc} -shared -fPIC -x c -o "$work/libvgpu.so" - || exit 1
library=$work/libvgpu.so

gpus='memory=8GiB;reserved=0;context=64MiB;visibility_ms=0;idle_ms=100;device;device'

start_lab() {
  "$lab" stop "$work/lab"
  "$lab" start "$work/lab" --cpus 32 --owner $$ --simgpu "$build/simgpu" --simgpu-config "$gpus" \
    --plugstack "$(plugin_line $site_options)" "$@" || exit 1
  eval "$("$lab" env "$work/lab")"
  export SLURM_CONF
}

site_options=  # the plugin's keys when the lab starts
# Nodes share the machine's /var: nothing is measured there, unless a test says where to keep it. Nobody watches, unless it says who.
plugin_line() { echo "required $plugin library=$library probe=$build/utils/vgpu-probe/vgpu-probe state=off watch=off $*"; }

# configure KEY=VALUE...: the plugin's keys from now on. Clients, prologs and steps read them each time; epilogs do, too, and
# must not find half a file.
configure() {
  eventually no_regions
  plugin_line "$@" >"$work/lab/etc/plugstack.conf.d/new"
  mv "$work/lab/etc/plugstack.conf.d/new" "$work/lab/etc/plugstack.conf.d/lab.conf"
}

on() { "$lab" node "$work/lab" "$1" -- "${@:2}"; }
games="setpriv --reuid=games --regid=games --clear-groups"
man="setpriv --reuid=man --regid=man --clear-groups"
regions() { on "$1" sh -c 'cd /run/vgpu && ls -d [0-9]* 2>/dev/null'; }
show() { on "$1" "$rank" --show "/run/vgpu/$2"; }
slurmd_log() { cat "$work/lab/log/slurmd.$1.log"; }

eventually() {
  local deadline=$((SECONDS + ${patience:-60}))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.1
  done
}

run() {
  output=$(timeout 120 "$@" 2>&1 </dev/null)
  status=$?
}

run_batch() {
  output=$(sbatch --parsable "$@" 2>&1 </dev/null)
  status=$?
  [ $status -eq 0 ] || return 0
  eventually has_ended "$output" || complain "job $output does not end"
  ! scontrol -o show job "$output" | grep -qv " JobState=COMPLETED " || status=1
}
has_ended() { [ -z "$(squeue -h -j "$1" 2>/dev/null)" ]; }

complain() {
  test_failed=yes
  printf '%s\n' "$1"
  [ -z "${2:-}" ] || sed 's/^/    /' <<<"$2"
}
status_is() { [ "$status" -eq "$1" ] || complain "status $status instead of $1; the output was:" "$output"; }
output_has() { [[ $output == *"$1"* ]] || complain "'$1' is missing in the output:" "$output"; }
output_lacks() { [[ $output != *"$1"* ]] || complain "'$1' should not be in the output:" "$output"; }
equal() { [ "$2" = "$3" ] || complain "$1: expected '$2', got '$3'"; }
true_that() { "${@:2}" || complain "not true: $1"; }

no_regions() { [ -z "$(regions n1)$(regions n2)$(on n1 sh -c 'ls -d /run/vgpu/.gpus-* /run/vgpu/.new-* /run/vgpu/.old-* 2>/dev/null')" ]; }
no_jobs() { [ -z "$(squeue -h)" ]; }

# After every test: no job, no region, and no node that was drained.
leaves_nothing() {
  eventually no_jobs || { complain "jobs are left" "$(squeue)" && scancel --user=root,games,man; }
  eventually no_regions || complain "regions are left:" "$(on n1 ls -la /run/vgpu; on n2 ls -la /run/vgpu)"
  ! sinfo -h -N -o '%N %T %E' | grep -qiE 'drain|down|fail' || complain "a node was drained" "$(sinfo -N -o '%N %T %E')"
}

run_tests() {
  local name start failures=0
  for name in $(sed -n 's/^\(test_[a-z0-9_]*\)() {.*/\1/p' "$self"); do
    [[ $name == *${1:-}* ]] || continue
    printf '[ RUN      ] %s\n' "$name"
    start=${EPOCHREALTIME/./}
    test_failed=
    rm -f "$work/ran" "$work"/signs/*  # ran: what a command leaves that should not have run
    "$name"
    leaves_nothing
    if [ -z "$test_failed" ]; then
      printf '[       OK ] %s (%d ms)\n' "$name" $(((${EPOCHREALTIME/./} - start) / 1000))
    else
      failures=$((failures + 1))
      printf '[  FAILED  ] %s (%d ms)\n' "$name" $(((${EPOCHREALTIME/./} - start) / 1000))
    fi
  done
  [ $failures -eq 0 ]
}
