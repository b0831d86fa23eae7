#!/bin/bash
# The samples in etc/ that a site copies: they work as they are shipped, but for the paths of a build directory.
. "$(dirname "$0")/spank_lib.sh"
etc=$here/../../etc
on_n1="-Q -w n1 --gres=gpu:1"

test_lines_of_plugstack() {
  local line lines=0
  while read -r line; do
    "$lab" stop "$work/lab"
    "$lab" start "$work/lab" --nodes 1 --owner $$ --simgpu "$build/simgpu" --simgpu-config "$gpus" \
      --plugstack "$(plugin_line ${line#required spank_vgpu.so})" || exit 1
    run srun $on_n1 --gpu-mem=1G printenv LD_PRELOAD
    status_is 0
    output_has "$library"
    lines=$((lines + 1))
  done < <(sed -n 's/^#*required /required /p' "$etc/plugstack.conf.d/vgpu.conf")
  equal "lines of the sample" 2 "$lines"
  start_lab
}

# What enroot does with the mounts that its hooks ask for, in a user namespace as it does; then the command, inside.
cat >container.sh <<'EOS'
set -eu
root=$1 mounts=$2
shift 2
mount -t tmpfs root "$root"
for directory in /bin /lib /lib64 /usr /proc; do
  mkdir -p "$root$directory" && mount --rbind "$directory" "$root$directory"
done
touch "$root/rank" && mount --bind "$WORK/rank" "$root/rank"
while read -r source target _ options; do
  mkdir -p "$root${target%/*}"
  case $options in *x-create=dir*) mkdir -p "$root$target" ;; *) touch "$root$target" ;; esac
  case $options in *rbind*) mount --rbind "$source" "$root$target" ;; *) mount --bind "$source" "$root$target" ;; esac
done <"$mounts"
exec chroot "$root" "$@"
EOS

hook() { # NAME: the hook with this test's library
  sed "s,^library=.*,library=$library," "$etc/enroot/50-vgpu.sh" >"$1"
  chmod 755 "$1"
}

# pyxis runs the hook in slurmstepd: as the user, but in the mount namespace of the node.
cat >enter.sh <<'EOS'
mounts=$(mktemp -p /tmp) && root=$(mktemp -d -p /tmp) && trap 'rm -r "$mounts" "$root"' EXIT
ENROOT_MOUNTS=$mounts "$WORK/hook" && unshare --user --map-root-user --mount sh "$WORK/container.sh" "$root" "$mounts" "$@"
EOS

in_container() { # COMMAND...: in a container that our hook has furnished, beside the job that runs on n1
  local job
  job=$(squeue -h -o %i)
  run "$lab" node "$work/lab" n1 -- $games env WORK="$work" SLURM_JOB_ID="$job" VGPU_REGION="/run/vgpu/$job" sh "$work/enter.sh" "$@"
}

namespaces_permitted() {
  $games unshare --user --map-root-user true 2>/dev/null || { echo "user namespaces are not permitted; left out" && return 1; }
}

start_job() { # SBATCH OPTION...
  $games sbatch -o /dev/null -w n1 --gres=gpu:1 "$@" --wrap 'sleep 100' >/dev/null
  eventually on n1 pgrep -u games -x sleep >/dev/null
}

end_job() {
  scancel "$(squeue -h -o %i)"
  eventually no_jobs
}

test_a_container_of_enroot() {
  namespaces_permitted || return 0
  start_job --gpu-mem=2G
  hook hook
  in_container /rank --show
  status_is 0
  output_has "uid=$(id -u games)"
  output_has "limit=$((2 * gib))"
  in_container /rank $((3 * gib))
  output_has refused
  in_container /rank $gib
  output_has granted
  in_container ls /run/vgpu "$library"
  output_has node
  library=/nowhere/libvgpu.so hook hook
  in_container true
  output_has "vgpu: /nowhere/libvgpu.so: there is no such file on this node"
  [ "$status" -ne 0 ] || complain "a container without the library was started"
  end_job
}

test_a_container_of_a_job_without_limits_is_left_alone() {
  namespaces_permitted || return 0
  start_job
  library=/nowhere/libvgpu.so hook hook
  in_container ls /
  status_is 0
  output_lacks run
  end_job
}

test_a_container_of_enroot_with_ldso() {
  namespaces_permitted || return 0
  site_options=preload=ldso start_lab
  start_job --gpu-mem=2G
  hook hook
  in_container env -i /bin/cat /etc/ld.so.preload
  equal "what is preloaded" "$library" "$output"
  in_container env -i /rank --show /run/vgpu/self
  output_has "limit=$((2 * gib))"
  end_job
  start_lab
}

test_variables_for_apptainer() {
  local prolog
  prolog=$(readlink -f "$etc/apptainer/task-prolog.sh")
  start_lab --conf TaskProlog="$prolog"
  run srun $on_n1 --gpu-mem=1G sh -c 'echo "$APPTAINERENV_LD_PRELOAD,$SINGULARITYENV_LD_PRELOAD,$APPTAINERENV_VGPU_REGION"'
  equal "variables" "$library,$library,/run/vgpu/1" "$output"
  run srun $on_n1 env
  output_lacks APPTAINERENV
}

start_lab
run_tests "$@"
