# Of lab.sh: what a node is. Its namespaces and their furniture, as its first process sees them; how it is entered and ended. Sourced.

# The first process of a node. It furnishes the namespaces it was started in, and then stays to reap orphans.
first_process() {
  load "$1"
  local name=$2 home=$dir/nodes/$2
  hostname "$name" &&
    mount -t proc proc /proc &&
    mount -t tmpfs -o mode=755 tmpfs /run &&
    private_etc "$home" &&
    private_dev "$home" || exit 1
  # The controller's munged also serves the clients that run on no node.
  if [ "$name" != ctl ]; then
    mount -t tmpfs -o mode=755 tmpfs "$dir/munge" || exit 1
    [ -z "$cgroup" ] || private_cgroups "$name" || exit 1
    [ -z "$simgpu" ] || simulated_driver "$name" || exit 1
  fi
  echo ready >"$home/ready"
  while :; do
    sleep infinity &
    wait
  done
}

# /etc as the machine has it, but changes stay in the node.
private_etc() {
  mkdir -p "$1/etc" "$1/etc.work"
  mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/etc.work" /etc
}

# /dev with the node's own GPUs and shared memory, and nothing of the machine but the usual files.
private_dev() {
  local file minor
  mkdir -p "$1/dev" && mount -t tmpfs -o mode=755 tmpfs "$1/dev" && cd "$1/dev" || return
  mkdir pts shm && mount --rbind /dev/pts pts && mount -t tmpfs -o mode=1777 tmpfs shm || return
  for file in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "${file%:*}" c 1 "${file#*:}" || return; done
  mknod -m 666 tty c 5 0
  ln -s pts/ptmx ptmx
  ln -s /proc/self/fd fd
  for file in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${file#*:}" "${file%:*}"; done
  [ -z "$own_gpus" ] || cp -a /dev/nvidia* . 2>/dev/null
  for minor in $minors; do [ -e "nvidia$minor" ] || mknod -m 666 "nvidia$minor" c 195 "$minor" || return; done
  [ -e nvidiactl ] || mknod -m 666 nvidiactl c 195 255
  cd / && mount --move "$1/dev" /dev
}

# The driver is found as on a real node: through ld.so.cache, whatever the environment. Every node has its own GPUs.
simulated_driver() {
  mkdir /run/simgpu && chmod 1777 /run/simgpu && mount -t tmpfs tmpfs /var/cache/ldconfig || return
  local text
  for text in "${simgpu_config[@]}"; do
    [[ ! $text =~ ^n[0-9]+= ]] || [[ $text == "$1="* ]] || continue
    tr ';' '\n' <<<"${text#"$1="}" >/run/simgpu/node.conf
  done
  echo "$simgpu/13.0" >/etc/ld.so.conf.d/00-simgpu.conf
  ldconfig
}

# The same controllers, but a subtree of them, so that two labs do not meet.
private_cgroups() {
  local controller group=$cgroup/$1
  for controller in devices freezer cpuset memory cpuacct; do
    [ -d "/sys/fs/cgroup/$controller/$group" ] || continue
    mount --bind "/sys/fs/cgroup/$controller/$group" "/sys/fs/cgroup/$controller" || return
  done
}

# No descriptor of the caller goes along: a test runner would wait for its end.
close_descriptors() {
  local fd
  for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    [ "$fd" -le 2 ] || eval "exec $fd>&-"
  done 2>/dev/null
}

start_node() {
  local name=$1 home=$dir/nodes/$1
  mkdir -p "$home"
  rm -f "$home/ready"
  (
    close_descriptors
    exec setsid unshare --mount --uts --pid --fork --kill-child --propagation private \
      env -i PATH="$PATH" LC_ALL=C "$self" first-process "$dir" "$name" </dev/null >>"$dir/log/$name.log" 2>&1
  ) &
  remember_process "$home/pid" $!
  disown
  wait_for "$patience" ready_or_gone "$home" && [ -e "$home/ready" ] || return
  daemon "$name" munged --key-file="$dir/munge.key" --socket="$dir/munge/munge.socket.2" --num-threads=2 \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
}

ready_or_gone() { [ -e "$1/ready" ] || gone "$1/pid"; }

# A daemon gets what systemd would give it, and nothing of the caller's environment.
daemon() {
  in_node "$1" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    SLURM_CONF="$dir/etc/slurm.conf" "${@:2}" </dev/null >>"$dir/log/$1.log" 2>&1
}

# The PID, as seen from here, of a node's first process: the child of the unshare that was remembered.
first_pid() {
  local parent
  parent=$(recall_process "$dir/nodes/$1/pid") || return
  read -r parent <"/proc/$parent/task/$parent/children"
  echo "$parent"
}

in_node() {
  local name=$1 pid
  shift
  pid=$(first_pid "$name") && [ -n "$pid" ] || die "$name is not running; lab.sh reboot $dir $name starts it"
  nsenter --target "$pid" --mount --uts --pid -- "$@"
}

stop_node() {
  local home=$dir/nodes/$1 pid
  pid=$(first_pid "$1") || return 0
  # With its first process the kernel ends all others of that PID namespace, before unshare can reap it and end too.
  kill -KILL "${pid:-$(recall_process "$home/pid")}"
  wait_for "$patience" gone "$home/pid" || printf 'lab.sh: %s does not end: process %s\n' "$1" "$pid" >&2
  rm -f "$home/pid"
}

make_cgroups() {
  local controller name
  for controller in devices freezer cpuset memory cpuacct; do
    [ -d "/sys/fs/cgroup/$controller" ] || continue
    for name in $(node_names); do mkdir -p "/sys/fs/cgroup/$controller/$cgroup/$name" || return; done
  done
}

# The deepest first; a group can be removed once the last of its processes has been reaped.
remove_cgroups() {
  wait_for "$patience" cgroups_removed || printf 'lab.sh: some of /sys/fs/cgroup/*/%s could not be removed\n' "$cgroup" >&2
}

cgroups_removed() {
  find /sys/fs/cgroup/*/"$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null
  ! ls -d /sys/fs/cgroup/*/"$cgroup" >/dev/null 2>&1
}
