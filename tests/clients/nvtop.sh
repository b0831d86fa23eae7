#!/bin/sh
# nvtop in a terminal of its own: both devices, their memory, and the process that holds some.
. "$(dirname "$0")/lib.sh"
need nvtop nvtop
need tmux tmux
node
hold_context 1
tmux="tmux -S $scratch/tmux"
$tmux -f /dev/null new-session -d -x 180 -y 50 "exec nvtop" || exit 1
tries=0
until $tmux capture-pane -p >"$scratch/screen" 2>/dev/null && grep -q "$holder" "$scratch/screen"; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || break
  sleep 0.1
done
cat "$scratch/screen"
$tmux kill-server
expect "both devices are shown" grep -q 'Device 0 \[Client GPU A\].*Device 1 \[Client GPU B\]' "$scratch/screen"
expect "the process is listed with its memory" grep -q "$holder .*200MiB" "$scratch/screen"
