# Of lab.sh: the options of `start`, and the configuration files they become. Sourced.

parse_options() {
  nodes=2 gpus=2 gpu_type= minors= shards= cpus=4 cgroup= simgpu= own_gpus= prolog= epilog= owner=
  plugstack=() job_submit=() conf=() slurmd_env=() simgpu_config=()
  while [ $# -gt 0 ]; do
    local option=$1
    shift
    case $option in
      --cgroup) cgroup=yes && continue ;;
      --own-gpus) own_gpus=yes && continue ;;
      --job-submit)
        while [ $# -gt 0 ] && [[ $1 != --* ]]; do job_submit+=("$1") && shift; done
        continue
        ;;
    esac
    [ $# -gt 0 ] || die "$option needs a value; see lab.sh help" 2
    case $option in
      --nodes) nodes=$1 ;;
      --gpus) gpus=$1 ;;
      --gpu-type) gpu_type=$1 ;;
      --minors) minors=$1 ;;
      --shards) shards=$1 ;;
      --cpus) cpus=$1 ;;
      --plugstack) plugstack+=("$1") ;;
      --prolog) prolog=$1 ;;
      --epilog) epilog=$1 ;;
      --simgpu) simgpu=$(readlink -f "$1") ;;
      --simgpu-config) simgpu_config+=("$1") ;;
      --conf) conf+=("$1") ;;
      --slurmd-env) slurmd_env+=("$1") ;;
      --owner) owner=$1 ;;
      *) die "unknown option $option; see lab.sh help" 2 ;;
    esac
    shift
  done
  [ -z "$simgpu" ] || [ -e "$simgpu/13.0/libcuda.so.1" ] || die "--simgpu: there is no $simgpu/13.0/libcuda.so.1"
  : "${shards:=$((8 * gpus))}"
  [ -n "$minors" ] || minors=$(seq -s ' ' 0 $((gpus - 1)))
  [ "$(wc -w <<<"$minors")" -eq "$gpus" ] || die "--minors: $gpus numbers are needed, as many as GPUs" 2
}

slurm_conf() {
  local key gres= n
  [ "$gpus" -eq 0 ] || gres="Gres=gpu:${gpu_type:+$gpu_type:}$gpus,shard:$shards"
  cat <<END
ClusterName=lab
SlurmctldHost=ctl(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$dir/munge/munge.socket.2
CredType=cred/munge
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/spool/%n/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=debug
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
TmpFS=$dir/tmp/%n
PlugStackConfig=$dir/etc/plugstack.conf
ReturnToService=2
MpiDefault=none
MailProg=/bin/true
ProctrackType=proctrack/$([ -n "$cgroup" ] && echo cgroup || echo linuxproc)
TaskPlugin=task/$([ -n "$cgroup" ] && echo cgroup || echo none)
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
DefMemPerCPU=100
GresTypes=gpu,shard
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=3
UnkillableStepTimeout=60
MessageTimeout=10
PrologFlags=Alloc
${prolog:+Prolog=$prolog}
${epilog:+Epilog=$epilog}
${job_submit:+JobSubmitPlugins=lua}
END
  for ((n = 1; n <= nodes; n++)); do
    echo "NodeName=n$n NodeHostname=n$n NodeAddr=127.0.0.1 Port=$((port + n)) CPUs=$cpus RealMemory=4000 $gres"
  done
  echo "PartitionName=debug Nodes=n[1-$nodes] Default=YES MaxTime=60 State=UP"
}

gres_conf() {
  local minor
  [ "$gpus" -gt 0 ] || return 0
  for minor in $minors; do echo "Name=gpu ${gpu_type:+Type=$gpu_type }File=/dev/nvidia$minor"; done
  echo "Name=shard Count=$shards"
}

write_configuration() {
  local line key
  umask 022
  declare -p dir nodes port minors own_gpus simgpu simgpu_config slurmd_env cgroup | sed "s/^declare /declare -g /" >"$dir/lab.conf"
  mkdir -p "$dir"/{etc/plugstack.conf.d,log,state,spool,munge,nodes}
  for line in $(node_names); do mkdir -p -m 1777 "$dir/tmp/$line"; done
  slurm_conf >"$dir/etc/slurm.conf"
  for line in "${conf[@]}"; do
    key=${line%%=*}
    [ "$key" = NodeName ] || [ "$key" = PartitionName ] || sed -i "/^$key=/d" "$dir/etc/slurm.conf"
    echo "$line" >>"$dir/etc/slurm.conf"
  done
  gres_conf >"$dir/etc/gres.conf"
  echo "include $dir/etc/plugstack.conf.d/*.conf" >"$dir/etc/plugstack.conf"
  printf '%s\n' "${plugstack[@]}" >"$dir/etc/plugstack.conf.d/lab.conf"
  printf '%s\n' CgroupPlugin=cgroup/v1 CgroupAutomount=no ConstrainDevices=yes >"$dir/etc/cgroup.conf"
  [ ${#job_submit[@]} -eq 0 ] || cp "${job_submit[@]}" "$dir/etc/" || die "--job-submit: cannot copy ${job_submit[*]}"
  head -c 128 /dev/urandom >"$dir/munge.key"
  chmod 400 "$dir/munge.key"
}

load() {
  dir=$(readlink -f "$1") && [ -e "$dir/lab.conf" ] || die "$1: there is no lab; start one with: lab.sh start $1"
  # shellcheck disable=SC1091
  . "$dir/lab.conf"
}

node_names() { seq -f 'n%.0f' 1 "$nodes"; }

need_node() {
  [[ $1 =~ ^n([1-9][0-9]*)$ ]] && [ "${BASH_REMATCH[1]}" -le "$nodes" ] && return
  [ "$1" = ctl ] || die "$1: there is no such node; there are: ctl $(node_names | xargs)" 2
}
