#!/bin/sh
# nvtop in a terminal of its own: both devices, their memory, and the process that holds some.
. "$(dirname "$0")/lib.sh"
need nvtop nvtop
need tmux tmux
node
tmux="tmux -S $scratch/tmux"
shows_holder() { $tmux capture-pane -p >"$scratch/screen" 2>/dev/null && grep -q "$holder" "$scratch/screen"; }
look() {
  $tmux -f /dev/null new-session -d -x 180 -y 50 "exec nvtop" || exit 1
  until_true shows_holder
  $tmux kill-server
  grep -e Device -e 'MEM\[' -e "$holder" "$scratch/screen" | sed "s,$holder,HOLDER,; s,MiB .*,MiB," | tr -s ' '
  expect "both devices are shown" grep -q 'Device 0 \[Client GPU A\].*Device 1 \[Client GPU B\]' "$scratch/screen"
  expect "the process is listed with its memory" grep -q "$holder .*200MiB" "$scratch/screen"
}
# A process of the job: those of others are not to be seen there.
checks() {
  hold_context 1
  look
  let_go
}
both_ways checks

job 1G,512M
hold_context 1
look
expect "the limits, and what the job uses of them" grep -q '0.000Gi/1.000Gi.*200.000Mi/512.000Mi' "$scratch/screen"
let_go
end_job
