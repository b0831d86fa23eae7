#!/bin/bash
# The lab itself: what a node has of its own, that two labs do not meet, and that nothing is left of one, however it ended.
set -u
here=$(cd "$(dirname "$0")" && pwd)
lab=$here/lab.sh
"$lab" check || exit

work=$(mktemp -d /tmp/vlab-XXXXXX)
chmod 755 "$work"
simgpu=$(readlink -f "${SIMGPU_BUILD:-simgpu}")
failed=0 passed=0
trap 'for name in a b b2/b; do "$lab" stop "$work/$name"; done; rm -rf "$work" "$work.before" "$work.after"' EXIT
trap 'exit 1' INT TERM

expect() { # name, expected, actual
  if [ "$2" = "$3" ]; then
    passed=$((passed + 1)) && echo "ok    $1"
  else
    failed=$((failed + 1)) && printf 'FAIL  %s\n  expected: %s\n  actual:   %s\n' "$1" "$2" "$3"
  fi
}

# What of a lab can be seen on the machine: its processes (in whatever namespace), mounts, control groups, files.
traces() {
  local pid
  for pid in /proc/[0-9]*; do
    tr '\0' ' ' <"$pid/cmdline" | grep -F "$work" | grep -v '^grep'
    readlink "$pid/cwd" "$pid/root" | grep -F "$work"
    grep -F "$work" "$pid/maps" "$pid/mountinfo"
  done 2>/dev/null
  grep -F "$work" /proc/self/mountinfo
  ls -d /sys/fs/cgroup/*/vgpu-lab*"${work##*/}"* 2>/dev/null
  ls -A "$work"
}

# What else a lab could have changed. Others may be at work here, so it is only what a lab would do.
machine() {
  awk '$5 ~ "^/(dev|etc|proc|run|sys/fs/cgroup|var/cache/ldconfig)(/|$)"' /proc/self/mountinfo
  hostname
  ls -d /etc/mark /etc/ld.so.conf.d/00-simgpu.conf /run/mark /run/simgpu /run/vgpu /run/munge* /run/slurm* /dev/nvidia[0-9]* 2>/dev/null
}

# The PID namespaces of a lab's nodes, and which of them still hold a process. An open descriptor keeps the kernel from giving
# a namespace's number to that of another lab.
seen=
note_namespaces() {
  # shellcheck disable=SC2034
  local node number process held
  for node in "$@"; do
    number=$("$lab" node "$work/${node%:*}" "${node#*:}" -- readlink /proc/self/ns/pid)
    for process in /proc/[0-9]*; do
      [ "$(readlink "$process/ns/pid")" != "$number" ] || { exec {held}<"$process/ns/pid" && break; }
    done 2>/dev/null
    seen+=" $number"
  done
}
namespaces_left() { readlink /proc/[0-9]*/ns/pid 2>/dev/null | grep -Fx "$(tr ' ' '\n' <<<"${seen# }")"; }

machine >"$work.before"

# ---- one lab ----

options=()
[ ! -e "$simgpu/13.0/libcuda.so.1" ] || options=(--simgpu "$simgpu" --simgpu-config 'device;memory=8GiB' --simgpu-config 'n2=device;memory=4GiB')
"$lab" start "$work/a" --minors "3 1" "${options[@]}" --slurmd-env LAB_TEST=yes || exit 1
in_lab() { (eval "$("$lab" env "$work/$1")" && "${@:2}"); }

expect "two nodes with their own names" "n1 n2" "$(in_lab a srun -N2 hostname | sort | xargs)"
"$lab" node "$work/a" n1 -- sh -c 'echo 1 >/run/mark; echo 1 >/dev/shm/mark; echo 1 >/etc/mark'
expect "/run, /dev/shm and /etc are the node's" "mark mark mark / none" \
  "$(in_lab a srun -w n1 sh -c 'cd /run; ls mark; cd /dev/shm; ls mark; cd /etc; ls mark' | xargs) / $(
    ls /run/mark /dev/shm/mark /etc/mark 2>/dev/null || "$lab" node "$work/a" n2 -- ls /run/mark /dev/shm/mark 2>/dev/null || echo none)"
expect "GPUs are where gres.conf says" "crw-rw-rw- 195, 1 /dev/nvidia1 crw-rw-rw- 195, 3 /dev/nvidia3" \
  "$("$lab" node "$work/a" n2 -- ls -l /dev/nvidia1 /dev/nvidia3 | awk '{ print $1, $5, $6, $NF }' | xargs)"
expect "a step has the GPU it asked for" 0 "$(in_lab a srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES)"
expect "a node shows its own processes alone" 1 "$("$lab" node "$work/a" n1 -- pgrep -cx slurmd)"
expect "slurmd has the environment it was given" LAB_TEST=yes \
  "$("$lab" node "$work/a" n1 -- sh -c 'tr "\0" "\n" </proc/$(pgrep -x slurmd)/environ' | grep LAB_TEST)"
if [ ${#options[@]} -gt 0 ]; then
  for node in n1:8 n2:4; do
    # What the tool says is without the driver's reserve of 256 MiB.
    expect "the simulated GPU of ${node%:*} needs no environment" $(((${node#*:} * 1024 - 256) << 20)) \
      "$(in_lab a srun -w "${node%:*}" env -i "$simgpu/simgpu-ctl" devices | cut -f 4)"
  done
  expect "and comes before a driver of the machine's own" "$simgpu/13.0/libnvidia-ml.so.1" \
    "$("$lab" node "$work/a" n1 -- ldconfig -p | sed -n 's/.*libnvidia-ml.so.1 .*=> //p' | head -n 1)"
else
  echo "the simulated GPU was not built; its part is left out"
fi

# ---- a second one beside it ----

"$lab" start "$work/b" --nodes 1 --cgroup --conf MaxJobCount=77 || exit 1
expect "two labs at once" "n1 n2 / n1" \
  "$(in_lab a srun -N2 hostname | sort | xargs) / $(in_lab b srun hostname)"
expect "--conf replaces a line" 77 "$(in_lab b scontrol show config | awk '$1 == "MaxJobCount" { print $3 }')"
own_gpu_alone="nvidia0: No such device or address nvidia1: Operation not permitted"
open_gpus() {
  in_lab "$1" srun --gres=gpu:1 sh -c 'for i in 0 1; do (: <"/dev/nvidia$i"); done' 2>&1 |
    sed -n 's,.*cannot open /dev/,,p' | sort | xargs
}
expect "with --cgroup a step can open its own GPU alone" "$own_gpu_alone" "$(open_gpus b)"

# ---- a third one, with the same last name ----

"$lab" start "$work/b2/b" --nodes 1 --cgroup || exit 1
groups_of() { "$lab" node "$work/$1" n1 -- cat /proc/self/mountinfo | sed -n 's,.* \(/.*\) /sys/fs/cgroup/devices .*,\1,p'; }
expect "labs with the same base name have control groups of their own" "differ" \
  "$([ -n "$(groups_of b)" ] && [ "$(groups_of b)" != "$(groups_of b2/b)" ] && echo differ)"
expect "and steps at the same time" "n1 n1" "$({ in_lab b srun hostname & in_lab b2/b srun hostname; wait; } | xargs)"
"$lab" stop "$work/b2/b"
rmdir "$work/b2"
expect "the end of one leaves the other its own" "$own_gpu_alone" "$(open_gpus b)"

# ---- daemons that go ----

expect "a lab in use is not overwritten" 1 "$("$lab" start "$work/a" >/dev/null 2>&1; echo $?)"
job=$(in_lab a sbatch --parsable -w n1 -o /dev/null --wrap 'sleep 60')
until_so() { for ((i = 0; i < 600; i++)); do "$@" && return; sleep 0.1; done; return 1; }
running() { [ "$(in_lab a squeue -h -j "$job" -o %T)" = RUNNING ]; }
until_so running
before=$("$lab" node "$work/a" n1 -- pgrep -x slurmd)
"$lab" restart-slurmd "$work/a" n1 --kill
expect "slurmd is another after a restart, and its job goes on" "yes RUNNING" \
  "$([ "$("$lab" node "$work/a" n1 -- pgrep -x slurmd)" != "$before" ] && echo yes) $(in_lab a squeue -h -j "$job" -o %T)"
"$lab" reboot "$work/a" n1
expect "after a reboot the node has nothing of what it had" "none none" \
  "$("$lab" node "$work/a" n1 -- sh -c 'pgrep -x slurmstepd || echo none; ls /run/mark 2>/dev/null || echo none' | xargs)"
in_lab a scancel "$job"
expect "and comes back" 0 "$("$lab" wait "$work/a" >/dev/null; echo $?)"
"$lab" slurmd "$work/a" n2 stop
expect "a node without its daemon" 0 "$("$lab" node "$work/a" n2 -- pgrep -cx slurmd)"

# ---- the end ----

note_namespaces a:ctl a:n1 a:n2 b:ctl b:n1
"$lab" node "$work/a" n1 -- setsid -f sleep 1000
expect "every node has a PID namespace of its own" 5 "$(namespaces_left | sort -u | wc -l)"
in_lab b sbatch -o /dev/null --wrap 'setsid -f sleep 1000; sleep 1000' >/dev/null
"$lab" stop "$work/a"
expect "the other lab does not notice" n1 "$(in_lab b srun --overlap hostname)"
"$lab" stop "$work/b"
expect "stopping what is stopped is no error" 0 "$("$lab" stop "$work/b"; echo $?)"
expect "nothing is left of two labs" "" "$(traces)"
expect "and no process of a node" "" "$(namespaces_left)"

# A test that is killed with its lab half-way through.
(bash -c '"$1" start "$2/a" --owner $$ && kill -KILL $$' _ "$lab" "$work" & wait) 2>/dev/null
no_traces() { [ -z "$(traces)" ]; }
until_so no_traces
expect "nothing is left when the owner was killed" "" "$(traces)"

# The same, and the lab's own first processes killed as well.
"$lab" start "$work/a" --owner $$ || exit 1
for node in ctl n1 n2; do kill -KILL "$(cut -d ' ' -f 1 "$work/a/nodes/$node/pid")"; done
"$lab" stop "$work/a"
expect "nothing is left when its processes were killed first" "" "$(traces)"

"$lab" start "$work/a" || exit 1
rm -f "$work"/a/nodes/*/pid
"$lab" stop "$work/a"
until_so no_traces
expect "nothing is left when its notes were lost" "" "$(traces)"
machine >"$work.after"
expect "the machine is as before" "" "$(diff "$work.before" "$work.after")"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
