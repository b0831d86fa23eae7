#!/bin/bash
# Ctrl-C, whenever it is typed, ends demo.sh and leaves nothing. So do a signal to end, and a terminal that is closed.
set -u -m # process groups of their own, as a terminal makes them
unset TMPDIR
. "$(dirname "$0")/demo_lib.sh"

ended() { ! kill -0 -- "-$1" 2>/dev/null; }

# interrupt SIGNAL SECONDS PID: so long after that demo has made its directory.
interrupt() {
  local directory= try
  for ((try = 0; try < 1000; try++)); do
    directory=$(readlink "/proc/$3/cwd") || break
    [[ $directory != /tmp/vdemo-* ]] || break
    sleep 0.02
  done
  [[ $directory == /tmp/vdemo-* ]] || { wrong "$1 after $2 s: the demo never made its directory" && return; }
  sleep "$2"
  kill -s "$1" -- "-$3" || { wrong "$1 after $2 s: the demo had ended by then" && return; }
  for ((try = 1; try < 300; try++)); do
    ! ended "$3" || break
    [ $((try % 20)) -ne 0 ] || kill -s "$1" -- "-$3" # by somebody who cannot wait
    sleep 0.1
  done
  ended "$3" || wrong "$1 after $2 s: the demo did not end within 30 s"
  gone "$directory"
}

checks=()
for when in "INT 0" "INT 1" "INT 4" "TERM 7" "HUP 2"; do
  "$demo" --simulated "$build" >/dev/null 2>&1 </dev/null &
  # shellcheck disable=SC2086
  { interrupt $when $! && exit $failures; } &
  checks+=($!)
done
for pid in "${checks[@]}"; do wait "$pid" || failures=$((failures + 1)); done
[ $failures -eq 0 ]
