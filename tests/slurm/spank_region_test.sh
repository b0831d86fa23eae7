#!/bin/bash
# The region's life: whose limits count, that it is there before the first task, and gone after every end of a job.
. "$(dirname "$0")/spank_lib.sh"

on_n1="-Q -w n1"
job_state() { squeue -h -j "$1" -o %T 2>/dev/null; }
is_running() { [ "$(job_state "$1")" = RUNNING ]; }
is_not_running() { ! is_running "$1"; }
has_region() { regions "$1" | grep -qx "$2"; }
has_no_region() { ! has_region "$@"; }
is_idle() { [ "$(sinfo -h -n "$1" -N -o %T)" = idle ]; }
held() { show "$1" "$2" | grep -q "used=$3 "; }

# submit OPTION... -- COMMAND: a batch job on n1 that runs; its id is in $job
submit() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  job=$(sbatch --parsable -w n1 -o "$work/job.out" "${options[@]}" --wrap="$2") || complain "sbatch failed"
  eventually is_running "$job" || complain "job $job does not run" "$(scontrol show job "$job")"
}

stepd_pid() { on n1 pgrep -f "slurmstepd: \[$1\.$2\]"; }

test_made_for_exactly_the_gpus_of_the_job() {
  run srun $on_n1 --gres=gpu:2 --gpu-mem=2G "$rank" --show
  output_has "uid=0"
  output_has "devices=2"
  output_has "device=0 uuid=GPU-516d6770-7500-4000-8000-000000000001 pci=0000:10:00.0 limit=$((2 * gib))"
  output_has "device=1 uuid=GPU-516d6770-7500-4000-8000-000000000002 pci=0000:11:00.0 limit=$((2 * gib))"
  submit --gres=gpu:1 --gpu-mem=1G -- "sleep 60"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  output_has "devices=1"
  output_has "uuid=GPU-516d6770-7500-4000-8000-000000000002"
  scancel "$job"
}

test_files_belong_to_whom_they_should() {
  run $games srun $on_n1 --gres=gpu:1 --gpu-mem=1G sh -c 'cd $VGPU_REGION && stat -c "%n %U %a" . *'
  equal "owners and modes" ". root 755 limits root 644 lock root 600 request root 644 usage games 600" "$(xargs <<<"$output")"
  run $games srun $on_n1 --gres=gpu:1 --gpu-mem=1G sh -c \
    'cd $VGPU_REGION; rm -f limits; rm -f usage; mv usage x; (: >limits); touch x; rmdir $VGPU_REGION; ls' 2>/dev/null
  equal "what a user can remove, replace or add" "limits lock request usage" "$(grep -v : <<<"$output" | xargs)"
}

test_a_group_shares_its_limit() {
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G -n4 "$rank" $((300 << 20)) with 4 signs/answered
  equal "of four ranks" 3 "$(grep -cx granted <<<"$output")"
  equal "of four ranks, over the limit" 1 "$(grep -cx refused <<<"$output")"
}

test_per_node() {
  run srun -Q -N2 --gres=gpu:1 --gpu-mem=1G "$rank" $((800 << 20))
  status_is 0
  equal "each node has its own" 2 "$(grep -cx granted <<<"$output")"
}

test_the_job_decides_for_its_steps() {
  cat >steps.sh <<END
#!/bin/bash
#SBATCH -w n1 --gres=gpu:1 --gpu-mem=2G --gpu-sm=60 -o $work/steps.out
$rank --show
echo same; srun $rank --show
echo higher; srun --gpu-mem=4G --gpu-sm=90 $rank --show
echo lower; srun --gpu-mem=1G echo RAN; echo status \$?
echo lower_sm; srun --gpu-sm=10 echo RAN; echo status \$?
echo opt_out; srun --gpu-mem=none echo RAN; echo status \$?
echo percent; srun --gpu-mem=25% $rank --show
END
  run_batch steps.sh
  output=$(cat steps.out)
  equal "all find the job's limits" 4 "$(grep -c "limit=$((2 * gib)) sm=60" steps.out)"
  output_has "vgpu: --gpu-mem: this step asks for 1GiB, less than the 2GiB of its job"
  output_has "vgpu: --gpu-sm: this step asks for 10 percent, less than the 60 of its job"
  output_has "vgpu: --gpu-mem=none"
  equal "and the three others fail" 3 "$(grep -c 'status 1' steps.out)"
  output_lacks RAN
}

test_a_step_from_outside_gets_the_region() {
  submit --gres=gpu:1 --gpu-mem=2G -- "sleep 60"
  run srun -Q --jobid="$job" --overlap --gres=gpu:1 "$rank" --show
  output_has "job=$job "
  output_has "limit=$((2 * gib)) "
  scancel "$job"
}

test_the_first_step_that_asks_decides_where_the_job_did_not() {
  cat >alloc.sh <<END
srun sh -c 'echo "[\$VGPU_REGION]"'
srun --gpu-mem=9G echo RAN
srun --gres=gpu:1 --gpu-mem=1G $rank --show
srun $rank --show
srun --gpu-mem=512M echo RAN
END
  run salloc -Q -w n1 --gres=gpu:2 bash alloc.sh
  output_has "[]"
  output_has "9GiB is more than"
  equal "for all GPUs of the job, and for later steps" 4 "$(grep -c "limit=$gib " <<<"$output")"
  output_has "less than the 1GiB of its job"
  output_lacks RAN
}

test_two_steps_at_once_make_one_region() {
  cat >race.sh <<END
for i in 1 2 3 4 5 6 7 8; do srun --overlap -n1 --gpu-mem=1G $rank $((300 << 20)) with 8 signs/answered & done
wait
END
  run salloc -Q -w n1 -n8 --gres=gpu:1 bash race.sh
  equal "granted of eight" 3 "$(grep -cx granted <<<"$output")"
  equal "refused of eight" 5 "$(grep -cx refused <<<"$output")"
}

test_fifty_overlapping_steps() {
  cat >fifty.sh <<END
for i in \$(seq 50); do srun --overlap -n1 --mem=1 $rank $((16 << 20)) with 50 signs/answered & done
wait
END
  run salloc -Q -w n1 -n1 --gres=gpu:1 --gpu-mem=1G bash fifty.sh
  equal "granted of fifty" 50 "$(grep -cx granted <<<"$output")"
}

test_what_the_prolog_found_wrong_fails_every_step() {
  # Also one that brings no option along, and would be left alone otherwise.
  run salloc -Q -w n1 --gres=gpu:1 --gpu-mem=9G env -u SLURM_SPANK__SLURM_SPANK_OPTION_vgpu_gpu_mem srun touch ran
  output_has "9GiB is more than GPU 0 of this node has"
  true_that "nothing ran" [ ! -e ran ]
}

test_a_prolog_that_comes_twice_leaves_running_steps_their_region() {
  submit --gres=gpu:1 --gpu-mem=1G -- "$rank $gib 60"
  eventually held n1 "$job" $gib || complain "nothing is held"
  run "$lab" node "$work/lab" n1 -- env -i SLURM_CONF="$SLURM_CONF" SLURM_JOBID="$job" SLURM_UID=0 SLURM_JOB_UID=0 \
    SLURM_JOB_GID=0 SLURM_JOB_GPUS=0 SPANK__SLURM_SPANK_OPTION_vgpu_gpu_mem=1G "$(command -v slurmstepd)" spank prolog
  status_is 0
  true_that "still held" held n1 "$job" $gib
  scancel "$job"
}

test_scancel() {
  submit --gres=gpu:1 --gpu-mem=1G -- "$rank $gib 60"
  eventually held n1 "$job" $gib || complain "nothing is held"
  scancel "$job"
  true_that "gone after scancel" eventually has_no_region n1 "$job"
}

test_time_limit() {
  submit --gres=gpu:1 --gpu-mem=1G -t 60 -- "$rank $gib 600"
  eventually held n1 "$job" $gib || complain "nothing is held"
  scontrol update JobId="$job" EndTime=now+1  # the controller looks twice a minute
  patience=70 true_that "gone after the time limit" eventually has_no_region n1 "$job"
}
# Slurm lets a requeued job wait for two minutes. Started within the second in which its credential was revoked it would fail.
starts_again() {
  sleep 2
  eventually runs_now "$1"
}
runs_now() {
  scontrol update JobId="$1" StartTime=now 2>/dev/null
  is_running "$1"
}

test_requeue_starts_clean() {
  submit --requeue --gres=gpu:1 --gpu-mem=1G -- "$rank $gib 60"
  eventually held n1 "$job" $gib || complain "nothing is held"
  local before
  before=$(on n1 stat -c %i "/run/vgpu/$job/limits")
  scontrol requeue "$job"
  true_that "the region goes" eventually has_no_region n1 "$job"
  true_that "the job runs again" starts_again "$job"
  true_that "and holds its memory again" eventually held n1 "$job" $gib
  true_that "in a new region" [ "$(on n1 stat -c %i "/run/vgpu/$job/limits")" != "$before" ]
  scancel "$job"
}

# Suspended ranks keep their memory, and their limit: who comes meanwhile gets what is left.
test_suspend_and_resume() {
  submit --gres=gpu:1 --gpu-mem=1G -- "$rank $gib 60"
  eventually held n1 "$job" $gib || complain "nothing is held"
  run scontrol suspend "$job"
  status_is 0
  true_that "its ranks stop" eventually is_suspended "$job"
  true_that "and keep what they hold" held n1 "$job" $gib
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" $gib
  output_has granted
  run scontrol resume "$job"
  true_that "they go on" eventually is_running "$job"
  true_that "in their region" held n1 "$job" $gib
  scancel "$job"
  true_that "which goes with the job" eventually has_no_region n1 "$job"
}
is_suspended() { [ "$(job_state "$1")" = SUSPENDED ] && on n1 ps -o s= -C rank | grep -q T; }

# By a job that wants the same GPUs and may have them.
test_preemption_gives_the_memory_to_the_next() {
  scontrol create PartitionName=urgent Nodes=n1 PriorityTier=10
  submit --requeue --gres=gpu:2 --gpu-mem=8G -- "$rank $((8 * gib)) 60"
  local first=$job
  eventually held n1 "$first" $((8 * gib)) || complain "nothing is held"
  run srun $on_n1 -p urgent --gres=gpu:2 --gpu-mem=8G "$rank" $((8 * gib))
  status_is 0
  output_has granted
  true_that "the region of the first is gone, or a new one" not_held n1 "$first" $((8 * gib))
  true_that "and it runs again" starts_again "$first"
  true_that "with its memory" eventually held n1 "$first" $((8 * gib))
  scancel "$first"
  scontrol delete PartitionName=urgent
}
not_held() { ! held "$@"; }

test_slurmstepd_killed() {
  submit --gres=gpu:1 --gpu-mem=1G -- "exec $rank $gib 60"
  eventually held n1 "$job" $gib || complain "nothing is held"
  local survivor
  survivor=$(on n1 pgrep -x rank)
  on n1 kill -KILL "$(stepd_pid "$job" batch)"
  scancel "$job"
  true_that "gone although a process survives" eventually has_no_region n1 "$job"
  true_that "the survivor is unharmed" on n1 kill -0 "$survivor"
  # It keeps what it mapped; the next job on that GPU neither sees nor harms it.
  run srun $on_n1 --gres=gpu:1 --gpu-mem=8G "$rank" $((8 * gib))
  output_has granted
  true_that "the survivor is still unharmed" on n1 kill -0 "$survivor"
  on n1 kill "$survivor"
}

test_slurmd_restarted_in_mid_job() {
  local how
  for how in "" --kill; do
    submit --gres=gpu:1 --gpu-mem=1G -- "$rank $gib 60 & $hold_on; srun --overlap $rank --show >$work/after.out; wait"
    eventually held n1 "$job" $gib || complain "nothing is held"
    "$lab" restart-slurmd "$work/lab" n1 $how
    true_that "still held after a restart $how" held n1 "$job" $gib
    let_go
    eventually test -s after.out
    true_that "a later step joins the same region $how" grep -q "used=$gib " after.out
    scancel "$job"
    true_that "gone at the end $how" eventually has_no_region n1 "$job"
    rm -f after.out signs/*
  done
}

test_slurmd_dead_when_the_job_ends() {
  submit --gres=gpu:1 --gpu-mem=1G -- "$hold_on"
  eventually holds "$job"
  "$lab" slurmd "$work/lab" n1 kill
  let_go
  true_that "the job ends" eventually is_not_running "$job"
  true_that "and its region is still there" has_region n1 "$job"
  "$lab" slurmd "$work/lab" n1 start
  true_that "gone when slurmd is back" eventually has_no_region n1 "$job"
  eventually is_idle n1
}

test_reboot() {
  submit --no-requeue --gres=gpu:1 --gpu-mem=1G -- "$rank $gib 60"
  eventually held n1 "$job" $gib || complain "nothing is held"
  "$lab" reboot "$work/lab" n1
  true_that "gone after a reboot" has_no_region n1 "$job"
  scancel "$job"  # the kernel of this node was not really started anew, and the controller believes in the job
  run srun $on_n1 --gres=gpu:1 --gpu-mem=8G "$rank" $((8 * gib))
  output_has granted
}

test_leftovers_of_killed_creators_go_when_slurmd_starts() {
  on n1 sh -c 'mkdir /run/vgpu/.new-0123456789abcdef /run/vgpu/.old-0123456789abcdef && touch /run/vgpu/.old-0123456789abcdef/usage'
  "$lab" restart-slurmd "$work/lab" n1
  eventually is_idle n1
  equal "left over" "" "$(on n1 sh -c 'ls -d /run/vgpu/.new-* /run/vgpu/.old-* 2>/dev/null')"
}

test_a_job_id_used_again_starts_clean() {
  # What an earlier job of the same id left, because its epilog never ran: a region of another user's, and an error.
  run srun $on_n1 true
  local next
  next=$(($(sbatch --parsable -w n1 -o /dev/null --wrap=true) + 1))
  on n1 sh -c "mkdir -m 755 /run/vgpu/$next && echo 'vgpu: of an earlier job' >/run/vgpu/$next/error"
  run $games srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  output_has "job=$next uid=$(id -u games)"
  run srun $on_n1 true
}

test_the_epilog_script_removes_only_its_own_job() {
  on n1 sh -c 'cd /run/vgpu && mkdir 41 410 && touch 41/limits 410/limits .gpus-41 .gpus-410'
  local id
  for id in "" "../vgpu/410" "41 410" "4*" 4 node; do
    true_that "it never fails" on n1 env -i SLURM_JOB_ID="$id" "$here/../../etc/epilog"
  done
  true_that "nothing has gone yet" on n1 ls /run/vgpu/41/limits /run/vgpu/.gpus-41 >/dev/null
  true_that "it never fails" on n1 env -i SLURM_JOB_ID=41 "$here/../../etc/epilog"
  equal "what is left" "/run/vgpu/.gpus-410 /run/vgpu/410 /run/vgpu/node" \
    "$(on n1 sh -c 'ls -d /run/vgpu/.gpus* /run/vgpu/[0-9]* /run/vgpu/node /run/vgpu/.old-*' 2>/dev/null | xargs)"
  on n1 env -i SLURM_JOB_ID=410 "$here/../../etc/epilog"
  true_that "without a region directory" on n1 env -i SLURM_JOB_ID=41 "$here/../../etc/epilog" /nowhere
}

start_lab --conf PreemptType=preempt/partition_prio --conf PreemptMode=REQUEUE
run_tests "$@"
