# Sourced by every client test. A test exits 0 when it passed, 77 when it was skipped (its last line says why), else 1.
#   need PROGRAM PACKAGE     skips unless the program is there
#   node [LEVEL]             starts a node of the test's own and puts this shell on it; LEVEL is 13.0 (default) or 535;
#                            $node_lines are further lines of its description, each with a ; at its end
#   job [SIZE [SM]]          puts this shell, and all it starts from now on, into a job: libvgpu.so is preloaded, SIZE is
#                            the limit on each device, and SM the share of its time; without them the job may have all of it
#   watch NAME               puts truth_oracle beside the job until its end, which fails if a device was over the limit;
#                            NAME is what truth_bench will call it. $node_lines must have count_calls=yes;
#   end_job                  and out of it again; fails the test if the job still holds something
#   both_ways CHECKS         runs a function natively and in a job without a limit, and insists on the same output; then
#                            lets go of what hold_context holds
#   books                    the job's own books, a line for each device: used, limit, peak in bytes; allocations refused
#   hold_context DEVICE      a client with a context and 100 MiB on the device until let_go; its PID is in $holder
#   nothing_held             succeeds once no process holds device memory, by the node's books and by the job's
#   refused_once FILE        the file has libvgpu's one line about the limit, and nothing else of libvgpu's
#   refused_at_most N FILE   the same, of several processes: one to N of these lines
#   expect WHAT COMMAND...   the test fails, with the output of everything before, unless the command succeeds
set -u
clients=$(cd "$(dirname "$0")" && pwd)
simgpu=$(cd "$clients/../../simgpu" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/simgpu-client-XXXXXX") || exit 1
holder=
keeper=
oracle=

finish() {
  unset LD_PRELOAD
  [ -z "$oracle" ] || { kill "$oracle" && wait "$oracle"; } 2>/dev/null
  [ -z "$holder" ] || kill "$holder" 2>/dev/null
  [ -z "$keeper" ] || { kill "$keeper" && wait "$keeper"; } 2>/dev/null
  [ -z "${SIMGPU_BUILD:-}" ] || "$SIMGPU_BUILD/simgpu-ctl" stop >/dev/null 2>&1
  rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' INT TERM

skip() {
  echo "skipped: $*"
  exit 77
}

fail() {
  echo "FAILED: $*"
  exit 1
}

need() { command -v "$1" >/dev/null 2>&1 || skip "$1 is not there; install the Debian package $2"; }

expect() {
  what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    fail "$what: $*"
  fi
}

# until_true COMMAND...: whether it succeeds within a minute; an idle machine needs milliseconds.
until_true() {
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || return 1
    sleep 0.1
  done
}

node() {
  [ -z "${SIMGPU_NODE:-}" ] || "$SIMGPU_BUILD/simgpu-ctl" stop
  SIMGPU_LEVEL=${1:-13.0}
  SIMGPU_NODE=$scratch/$SIMGPU_LEVEL
  export SIMGPU_LEVEL SIMGPU_NODE
  eval "$("$simgpu/env.sh")" || skip "the simulated driver is not built"
  # A device that costs little to fill, a client that is visible at once, and a node that waits for its next one on a machine
  # that has much else to do.
  SIMGPU_CONFIG="memory=4GiB; context=100MiB; visibility_ms=0; idle_ms=60000; ${node_lines:-} device; name=Client GPU A; device; name=Client GPU B"
  SIMGPU_LOG=1
  export SIMGPU_CONFIG SIMGPU_LOG
  "$SIMGPU_BUILD/simgpu-ctl" devices || exit 1
}

# vgpu-run makes the region, as it does for users, and keeps it while a rank of its own sleeps.
job() {
  build=$(cd "$SIMGPU_BUILD/.." && pwd)
  [ -x "$build/utils/vgpu-run/vgpu-run" ] || skip "vgpu-run is not built; install the Debian package libcli11-dev"
  XDG_RUNTIME_DIR=$scratch "$build/utils/vgpu-run/vgpu-run" ${1:+--gpu-mem="$1"} ${2:+--gpu-sm="$2"} -- sh -c \
    'printf "VGPU_REGION=%s\nLD_PRELOAD=%s\n" "$VGPU_REGION" "$LD_PRELOAD" >"$0" && exec sleep 600' "$scratch/job" &
  keeper=$!
  until_true grep -qs LD_PRELOAD "$scratch/job" || fail "vgpu-run does not start"
  . "$scratch/job"
  export VGPU_REGION LD_PRELOAD
  rm "$scratch/job"
  echo "in a job with ${1:-no limit}${2:+ and $2 % of the time}"
}

watch() { # NAME
  env -u LD_PRELOAD "$build/tests/clients/truth_oracle" "$VGPU_REGION" "$1" >"$scratch/oracle" 2>&1 &
  oracle=$!
  until_true grep -qs '^watching' "$scratch/oracle" || { cat "$scratch/oracle" && fail "truth_oracle does not start"; }
}

end_watch() {
  kill "$oracle"
  wait "$oracle"
  status=$?
  oracle=
  sed 1d "$scratch/oracle"
  expect "the devices were never over the limit while no call was in progress" test $status -eq 0
}

end_job() {
  [ -z "$oracle" ] || end_watch
  expect "the job holds nothing" nothing_held
  expect "and was never over its limit" within_limit
  kill "$keeper"
  wait "$keeper"
  keeper=
  unset VGPU_REGION LD_PRELOAD
}

both_ways() {
  checked natively "$1"
  job
  checked unlimited "$1"
  expect "without a limit, libvgpu changes nothing in the output" diff "$scratch/natively" "$scratch/unlimited"
  [ -z "$holder" ] || let_go
  end_job
}

# In a shell of its own, so that what it prints is seen also when it ends there.
checked() { # NAME CHECKS
  ("$2") >"$scratch/$1" 2>&1
  status=$?
  echo "$1:"
  cat "$scratch/$1"
  [ $status -eq 0 ] || exit $status
}

books() { "$build/tests/clients/region_books" "$VGPU_REGION"; }

hold_context() {
  mkfifo "$scratch/orders"
  "$SIMGPU_BUILD/simgpu-client" <"$scratch/orders" >"$scratch/answers" &
  holder=$!
  exec 9>"$scratch/orders"
  printf 'ctx %s\nalloc 104857600\n' "$1" >&9
  until_true holder_is_ready || fail "the holding client does not answer"
}
holder_is_ready() { [ "$(grep -cs '^0' "$scratch/answers")" = 2 ]; }

let_go() {
  { kill "$holder" && wait "$holder"; } 2>/dev/null
  holder=
  exec 9>&-
  rm "$scratch/orders" "$scratch/answers"
}

# The node takes a moment to take memory back.
nothing_held() {
  until_true books_are_empty && return
  "$SIMGPU_BUILD/simgpu-ctl" usage
  [ -z "$keeper" ] || books
  return 1
}
books_are_empty() {
  [ -z "$("$SIMGPU_BUILD/simgpu-ctl" usage)" ] || return
  [ -z "$keeper" ] || books | awk '$1 != 0 { held = 1 } END { exit NR == 0 || held }'
}
within_limit() { books | awk '$3 > $2 { over = 1 } END { exit NR == 0 || over }'; }

refused_once() { refused_at_most 1 "$1"; }
refused_at_most() { # N FILE
  lines=$(grep -c 'vgpu: ' "$2")
  [ "$lines" -ge 1 ] && [ "$lines" -le "$1" ] &&
    [ "$(grep -c '^vgpu: GPU GPU-[-0-9a-f]*: out of memory: .* used + .* asked > .* limit; .*--gpu-mem$' "$2")" -eq "$lines" ]
}
