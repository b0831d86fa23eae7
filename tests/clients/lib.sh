# Sourced by every client test. A test exits 0 when it passed, 77 when it was skipped (its last line says why), else 1.
#   need PROGRAM PACKAGE     skips unless the program is there
#   node [LEVEL]             starts a node of the test's own and puts this shell on it; LEVEL is 13.0 (default) or 535
#   hold_context DEVICE      a client with a context and 100 MiB on the device until the test ends; its PID is in $holder
#   nothing_held             succeeds once no process holds device memory; the node takes a moment to take it back
#   expect WHAT COMMAND...   the test fails, with the output of everything before, unless the command succeeds
set -u
clients=$(cd "$(dirname "$0")" && pwd)
simgpu=$(cd "$clients/../simgpu" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/simgpu-client-XXXXXX") || exit 1
holder=

finish() {
  [ -z "$holder" ] || kill "$holder" 2>/dev/null
  [ -z "${SIMGPU_BUILD:-}" ] || "$SIMGPU_BUILD/simgpu-ctl" stop >/dev/null 2>&1
  rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' INT TERM

skip() {
  echo "skipped: $*"
  exit 77
}

need() { command -v "$1" >/dev/null 2>&1 || skip "$1 is not there; install the Debian package $2"; }

node() {
  SIMGPU_LEVEL=${1:-13.0}
  SIMGPU_NODE=$scratch/node
  export SIMGPU_LEVEL SIMGPU_NODE
  eval "$("$simgpu/env.sh")" || skip "the simulated driver is not built"
  # A device that costs little to fill, and a client that is visible at once.
  SIMGPU_CONFIG='memory=4GiB; context=100MiB; visibility_ms=0; device; name=Client GPU A; device; name=Client GPU B'
  SIMGPU_LOG=1
  export SIMGPU_CONFIG SIMGPU_LOG
  "$SIMGPU_BUILD/simgpu-ctl" devices || exit 1
}

hold_context() {
  mkfifo "$scratch/orders"
  "$SIMGPU_BUILD/tests/simgpu_client" <"$scratch/orders" >"$scratch/answers" &
  holder=$!
  exec 9>"$scratch/orders"
  printf 'ctx %s\nalloc 104857600\n' "$1" >&9
  tries=0
  until [ "$(grep -c '^0' "$scratch/answers")" = 2 ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "the holding client does not answer"; exit 1; }
    sleep 0.1
  done
}

nothing_held() {
  tries=0
  while [ -n "$("$SIMGPU_BUILD/simgpu-ctl" usage)" ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { "$SIMGPU_BUILD/simgpu-ctl" usage; return 1; }
    sleep 0.1
  done
}

expect() {
  what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    echo "FAILED: $what: $*"
    exit 1
  fi
}
