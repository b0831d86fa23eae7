#!/bin/bash
# A private Slurm cluster on one machine: real daemons, each node in namespaces of its own. See README.md, or lab.sh help.

set -u -o pipefail
export LC_ALL=C
self=$(readlink -f "${BASH_SOURCE[0]}")
# Seconds until something is given up that takes milliseconds on an idle machine; a loaded one may need longer.
patience=60
. "${self%/*}/lab_config.sh"
. "${self%/*}/lab_node.sh"

usage() {
  cat <<'END'
usage: lab.sh start DIR [OPTION...]            make a cluster in DIR (new or empty) and wait until its nodes are idle
       lab.sh stop DIR                         end it and remove DIR; may be repeated
       lab.sh env DIR                          print the exports that clients need:  eval "$(lab.sh env DIR)"
       lab.sh wait DIR [NODE...]               wait until these nodes (or all) are idle, at most 60 s
       lab.sh node DIR NODE -- COMMAND...      run a command on a node (or on "ctl"), as root
       lab.sh slurmd DIR NODE start|stop|kill  one node's daemon: start it, end it in order, or by SIGKILL
       lab.sh restart-slurmd DIR NODE [--kill] stop (or kill) and start
       lab.sh reboot DIR NODE                  end every process of a node, forget its /run, start it again
       lab.sh check                            say whether a lab can run here; 77 when not

options of start:
  --nodes N               how many nodes, n1 to nN (2)
  --gpus N                GPUs per node (2)
  --gpu-type TYPE         call them gpu:TYPE
  --minors "M..."         minor numbers of the device files, in the order of the gres indices ("0 1 ...")
  --shards N              gres/shard per node (8 for each GPU)
  --cpus N                CPUs per node, whatever the machine has (4)
  --plugstack LINE        a line of plugstack.conf.d; may be repeated
  --job-submit FILE...    job_submit.lua, then the files it loads; ends at the next option
  --prolog FILE, --epilog FILE
  --cgroup                proctrack/cgroup and task/cgroup with ConstrainDevices
  --simgpu DIR            the simulated GPU as the nodes' driver; DIR is where it was built, holding 13.0/libcuda.so.1
  --own-gpus              the machine's own device files, for its own driver, besides those of --minors
  --simgpu-config TEXT    its description, one for every node (";" for line ends), or NODE=TEXT for one node
  --conf KEY=VALUE        a line of slurm.conf, in place of ours; may be repeated
  --slurmd-env NAME=VALUE for the environment of the slurmds; may be repeated
  --owner PID             stop the lab when that process has ended, whatever its end
END
}

die() {
  printf 'lab.sh: %s\n' "$1" >&2
  exit "${2:-1}"
}

skip() {
  printf 'skipped: %s\n' "$1"
  exit 77
}

# ---- small things ---------------------------------------------------------------------------------------------------

# wait_for SECONDS COMMAND...: repeats the command until it succeeds.
wait_for() {
  local deadline=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift
  until "$@"; do
    [ "${EPOCHREALTIME/./}" -lt "$deadline" ] || return 1
    sleep 0.02
  done
}

# A process is known by its PID and its start time, so that a PID used again is never taken for it. A zombie has none.
start_time() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  [ "$1" = Z ] || echo "${20}"
}

remember_process() { echo "$2 $(start_time "$2")" >"$1"; }

# recall_process FILE: the PID, when that process still lives.
recall_process() {
  local pid start
  { read -r pid start <"$1"; } 2>/dev/null || return
  [ -n "$start" ] && [ "$(start_time "$pid")" = "$start" ] && echo "$pid"
}

gone() { ! recall_process "$1" >/dev/null; }

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The first of COUNT neighbouring ports that nobody listens on, below those that the kernel hands out by itself.
free_ports() {
  local base port try
  for try in {1..50}; do
    base=$((20000 + RANDOM % 12000))
    for ((port = base; port < base + $1; port++)); do
      ! listening "$port" || continue 2
    done
    echo "$base"
    return
  done
  die "no $1 neighbouring free ports were found in $try tries"
}

# ---- can it run here? -----------------------------------------------------------------------------------------------

check() {
  local command
  [ "$(id -u)" -eq 0 ] || skip "a private Slurm cluster needs root"
  for command in slurmctld slurmd munged srun unshare nsenter; do
    command -v "$command" >/dev/null || skip "$command is missing; install slurmctld slurmd slurm-client munge"
  done
  unshare --mount --uts --pid --fork --kill-child mount -t proc proc /proc 2>/dev/null ||
    skip "mount and PID namespaces are not permitted here"
}

# ---- daemons ----------------------------------------------------------------------------------------------------------

# slurmd DIR NODE start|stop|kill
slurmd() {
  local name=$1 action=$2 pid_file=$dir/spool/$1/slurmd.pid
  case $action in
    start)
      mkdir -p "$dir/spool/$name"
      daemon "$name" env "${slurmd_env[@]}" slurmd -N "$name"
      ;;
    stop | kill)
      in_node "$name" bash -c '
        read -r pid <"$1" || exit 0
        kill "$2" "$pid" 2>/dev/null || exit 0
        for ((i = 0; i < 3000; i++)); do kill -0 "$pid" 2>/dev/null || exit 0; sleep 0.02; done
        exit 1' slurmd-end "$pid_file" "$([ "$action" = stop ] && echo -TERM || echo -KILL)"
      ;;
    *) die "slurmd: $action: start, stop or kill" 2 ;;
  esac
}

idle() {
  local wanted=$# ready
  ready=$(SLURM_CONF=$dir/etc/slurm.conf sinfo -h -N -o '%N %T' -n "$(IFS=, && echo "$*")" 2>/dev/null | grep -c ' idle$')
  [ "$ready" -eq "$wanted" ]
}

wait_idle() {
  # shellcheck disable=SC2046
  [ $# -gt 0 ] || set -- $(node_names)
  wait_for "$patience" idle "$@" && return
  SLURM_CONF=$dir/etc/slurm.conf sinfo -N -o '%N %T %E' >&2
  tail -n 5 "$dir"/log/slurm*.log >&2
  printf 'lab.sh: %s: not idle within %s s\n' "$*" "$patience" >&2
  return 1
}

# ---- the whole ------------------------------------------------------------------------------------------------------

bring_up() {
  local name
  port=$(free_ports $((nodes + 1))) || return
  write_configuration
  [ -z "$cgroup" ] || make_cgroups || return
  start_node ctl || return
  daemon ctl slurmctld || return
  for name in $(node_names); do start_node "$name" & done
  wait
  wait_for "$patience" listening_or_gone && listening "$port" || return
  for name in $(node_names); do slurmd "$name" start & done
  wait
  wait_idle
}

listening_or_gone() { listening "$port" || ! in_node ctl pgrep -x slurmctld >/dev/null; }

start() {
  [ $# -gt 0 ] || die "start: where? see lab.sh help" 2
  local given=$1 try
  shift
  parse_options "$@"
  check
  mkdir -p "$given" && dir=$(readlink -f "$given") || die "$given: cannot be made"
  # Unix sockets end at 107 characters; the longest name below is spool/n1/n1_4294967295.4294967295.
  [ ${#dir} -le 64 ] || die "$dir: the name is too long for the sockets in it; use a directory with at most 64 characters"
  chmod 755 "$dir"
  setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$dir" ||
    die "$dir: other users cannot reach it, so their jobs could not run; chmod a+x the directories above it"
  [ -z "$(ls -A "$dir")" ] || die "$dir: is not empty; lab.sh stop ends an earlier lab"
  # Named after the whole path: labs in different directories never share a group.
  [ -z "$cgroup" ] || cgroup=vgpu-lab${dir//\//,}
  trap 'stop "$dir"; exit 1' INT TERM
  # One lab of the machine at a time looks for ports and takes them. Somebody else may still be faster.
  exec 9</
  flock --timeout "$patience" 9
  for try in 1 2 3; do
    if bring_up 9<&-; then
      [ -z "$owner" ] || stop_with "$owner"
      return
    fi
    grep -qs 'Address already in use' "$dir"/log/*.log || break
    stop "$dir"
    mkdir -p "$dir"
  done
  tail -n 20 "$dir"/log/*.log >&2
  stop "$dir"
  die "the cluster did not start; above are its logs"
}

stop_with() {
  (
    exec </dev/null >/dev/null 2>&1
    close_descriptors
    exec setsid "$self" stop-with "$1" "$dir"
  ) &
  remember_process "$dir/watch.pid" $!
  disown
}

stop() {
  local name
  [ -e "$1/lab.conf" ] || return 0
  load "$1"
  for name in ctl $(node_names); do stop_node "$name" & done
  wait
  end_strays
  [ -z "$cgroup" ] || remove_cgroups
  rm -rf --one-file-system "$dir"
}

# Who waits for the owner, with its tail; and nodes of a start that was killed before it wrote down their PIDs.
end_strays() {
  local pid process
  pid=$(recall_process "$dir/watch.pid") && [ "$pid" -ne $$ ] && kill -KILL -- "-$pid"
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    [[ "$(tr '\0' '\n' 2>/dev/null <"$process/cmdline")" != *$'\n'first-process$'\n'"$dir"$'\n'* ]] || kill -KILL "$pid"
  done 2>/dev/null
}

main() {
  local command=${1:-help}
  [ $# -eq 0 ] || shift
  case $command in
    start) start "$@" ;;
    stop) stop "${1:?lab.sh stop: which directory?}" ;;
    check) (check) ;;
    help | --help | -h) usage ;;
    first-process) first_process "$@" ;;
    stop-with)
      tail --pid="$1" -f /dev/null
      stop "$2"
      ;;
    env | wait | node | slurmd | restart-slurmd | reboot)
      load "${1:?lab.sh $command: which directory?}"
      shift
      case $command in env | wait) ;; *) need_node "${1:-}" ;; esac
      "command_${command//-/_}" "$@"
      ;;
    *) die "unknown command $command; see lab.sh help" 2 ;;
  esac
}

command_env() { printf 'export SLURM_CONF=%q\n' "$dir/etc/slurm.conf"; }

command_wait() { wait_idle "$@"; }

command_node() {
  local name=$1
  shift
  [ "${1:-}" != -- ] || shift
  [ $# -gt 0 ] || die "node: which command?" 2
  in_node "$name" "$@"
}

command_slurmd() { slurmd "$1" "${2:-}"; }

command_restart_slurmd() {
  if [ "${2:-}" = --kill ]; then slurmd "$1" kill; else slurmd "$1" stop; fi &&
    slurmd "$1" start
}

command_reboot() {
  stop_node "$1"
  start_node "$1" && slurmd "$1" start
}

main "$@"
