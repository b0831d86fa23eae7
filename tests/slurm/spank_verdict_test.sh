#!/bin/bash
# What root decided about a job is always there, and nobody else's files can take its room: filling, deleting, locking; killed
# creators, namespaces of jobs, unmounting; and steps of jobs about which nothing was decided.
. "$(dirname "$0")/spank_lib.sh"
vgpuctl=$build/utils/vgpuctl/vgpuctl
on_n1="-Q -w n1"

mounts() { on n1 grep -c " /run/vgpu/.*usage" /proc/mounts; }
no_mounts() { [ "$(mounts)" = 0 ]; }
has_ended_filling() { [ -e signs/filled ]; }

test_usage_has_room_for_itself_and_nothing_else() {
  local job
  cat >fill.sh <<END
cd \$VGPU_REGION
dd if=/dev/zero of=usage bs=1M count=200 seek=1 conv=notrunc; truncate -s 1T usage; echo x >x; mkdir x; ln usage x
touch $work/signs/filled
$hold_on
END
  job=$($games sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o fill.out --wrap="sh $work/fill.sh" --chdir=/tmp)
  true_that "the first has done its worst" eventually has_ended_filling
  true_that "root's own file system has room: $(on n1 df -k /run/vgpu)" \
    [ "$(on n1 df -k --output=used /run/vgpu | tail -n 1)" -lt 1024 ]
  # The next job, of another user, has the limit it asked for, and no other.
  run $man srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" $gib
  output_has granted
  run $man srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" $((2 * gib))
  output_has refused
  run $man salloc $on_n1 --gres=gpu:1 --gpu-mem=1G srun --gpu-mem=7G "$rank" --show
  output_has "limit=$gib "
  scancel "$job"
  true_that "nothing stays mounted" eventually no_mounts
}

# With fail=closed and without: what is not there was not decided.
test_a_step_without_a_verdict_does_not_run() {
  local keys
  for keys in "" "require_limits=yes default_mem=1G" fail=open; do
    configure $keys
    run $games salloc $on_n1 --gres=gpu:1 sh -c "touch $work/signs/\$SLURM_JOB_ID; until [ -e $work/signs/go ]; do sleep 0.1; done; srun touch $work/signs/ran; srun --gpu-mem=7G touch $work/signs/ran; srun --gres=none echo cpu" &
    eventually has_come
    eventually has_entry
    on n1 sh -c 'rm -rf --one-file-system /run/vgpu/[0-9]* 2>/dev/null; umount -l /run/vgpu/[0-9]*/usage 2>/dev/null; rm -rf /run/vgpu/[0-9]*'
    let_go
    wait
    true_that "no step with a GPU ran ($keys)" [ ! -e signs/ran ]
    rm -f signs/*
  done
  configure
  true_that "it is logged" grep -q "nothing was decided about this job's GPUs on this node" "$work/lab/log/slurmd.n1.log"
}
has_come() { compgen -G 'signs/[0-9]*' >/dev/null; }
has_entry() { [ -n "$(regions n1)" ]; }

test_jobs_older_than_the_plugin_are_let_through() {
  run $games salloc $on_n1 --gres=gpu:1 sh -c "touch $work/signs/\$SLURM_JOB_ID; until [ -e $work/signs/go ]; do sleep 0.1; done; srun --gpu-mem=1G $rank --show" >/dev/null &
  eventually has_come
  eventually has_entry
  sleep 1
  on n1 sh -c "rm -rf /run/vgpu/[0-9]*; date +%s >/run/vgpu/.since"
  let_go
  wait
  true_that "it is logged" grep -q "is older than the first start of this plugin here" "$work/lab/log/slurmd.n1.log"
}

test_every_job_with_a_gpu_has_one_before_its_first_step() {
  configure shard_mem=1G opt_out=everybody
  local what
  for what in "--gres=gpu:1:undecided" "--gres=shard:1:undecided" "--gres=gpu:1 --gpu-mem=1G:limits" "--gres=gpu:1 --gpu-mem=9G:error" \
    "--gres=gpu:1 --gpu-mem=none:opted-out"; do
    salloc $on_n1 ${what%:*} sh -c "touch $work/signs/\$SLURM_JOB_ID; until [ -e $work/signs/go ]; do sleep 0.1; done" &
    true_that "${what##*:} for ${what%:*}" eventually on n1 sh -c "ls /run/vgpu/[0-9]*/${what##*:} >/dev/null 2>&1"
    let_go
    wait
    eventually no_regions
    rm -f signs/*
  done
  run srun $on_n1 true
  configure
}

test_killed_between_mount_and_rename() {
  on n1 sh -c 'cd /run/vgpu && mkdir .new-0123456789abcdef && cd .new-* && mkdir .room && touch usage &&
    mount -t tmpfs -o size=64k vgpu .room && touch .room/usage && mount --bind .room/usage usage && mount --bind .room/usage usage'
  "$lab" restart-slurmd "$work/lab" n1
  eventually is_idle
  equal "left over" "" "$(on n1 sh -c 'ls -d /run/vgpu/.new-* 2>/dev/null; grep /run/vgpu/.new /proc/mounts')"
}
is_idle() { [ "$(sinfo -h -n n1 -N -o %T)" = idle ]; }

test_a_lazy_unmount_ends_in_a_sentence() {
  local job
  job=$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o late.out \
    --wrap="$rank $((1 << 20)) with 1 signs/first; $hold_on; srun --overlap $rank $((1 << 20)); $rank $((1 << 20))")
  eventually holds "$job"
  on n1 umount -l "/run/vgpu/$job/usage"
  run "$lab" node "$work/lab" n1 -- "$vgpuctl" list -n -P -o jobid,mem-limit,state
  status_is 0
  output_has "$job|1GiB|damaged"
  let_go
  eventually has_ended "$job"
  output=$(cat late.out)
  equal "granted before, and not behind it" 1 "$(grep -cx granted late.out)"
  output_has "is not mounted in this job's namespace"
}

test_shared_room_works_too() {
  configure usage_room=shared
  run $games srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" $gib
  output_has granted
  equal "mounts" 0 "$(mounts)"
  configure
}

# As job_container/tmpfs and its successors do: tasks enter a mount namespace that was there before the prolog, and hears of no
# later mount.
cat >enter.c <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
SPANK_PLUGIN(enter, 1)
int slurm_spank_task_init_privileged(spank_t handle, int argc, char **argv) {
  int fd = open(argv[0], O_RDONLY);
  return fd < 0 ? 0 : setns(fd, CLONE_NEWNS);
}
END
test_a_namespace_that_hears_of_no_mounts() {
  ${CC:-gcc} -shared -fPIC -o enter.so enter.c || return
  on n1 sh -c 'setsid unshare --mount --propagation private sleep 600 & echo $!' >holder.pid
  local keys
  for keys in preload=env preload=ldso; do
    configure $keys
    echo "required $work/enter.so /proc/$(cat holder.pid)/ns/mnt" >"$work/lab/etc/plugstack.conf.d/a.conf"
    run $games srun $on_n1 --gres=gpu:1 --gpu-mem=1G -n4 "$rank" $((300 << 20)) with 4 "$work/signs/answered"
    equal "of four ranks, $keys" "3 1" "$(grep -cx granted <<<"$output") $(grep -cx refused <<<"$output")"
    # Made by a step, in a job whose namespace is there.
    run $games salloc $on_n1 --gres=gpu:1 sh -c "srun true; srun --gpu-mem=1G $rank $gib; srun $rank --show"
    output_has granted
    output_has "limit=$gib "
    rm -f "$work/lab/etc/plugstack.conf.d/a.conf" signs/*
  done
  true_that "nothing stays mounted" eventually no_mounts
  on n1 kill "$(cat holder.pid)"
  configure
}

start_lab
run_tests "$@"
