#!/bin/bash
# etc/job_submit.lua in a real slurmctld, with the real plugin: jobs are packed by GPU memory.
. "$(dirname "$0")/spank_lib.sh"
etc=$here/../../etc
log=$work/lab/log/slurmctld.log

batch() { sbatch --parsable -o /dev/null "$@" 2>/dev/null; }
held() { batch -H "$@"; }
asked() { squeue -h -j "$1" -o %b | sort -u | xargs; }
shards() { "$@" printenv SLURM_SHARDS_ON_NODE 2>/dev/null; }
states() { squeue -h -o %T | sort | uniq -c | xargs; }
states_are() { [ "$(states)" = "$1" ]; }
runs() { [ "$(squeue -h -j "$1" -o %T)" = RUNNING ]; }
limits_of() { "$@" "$rank" --show 2>/dev/null | sed -n 's/^device=.* limit=\([0-9]*\) sm=\([0-9]*\) .*/\1 \2/p' | xargs; }
limited_jobs_are() { [ "$(on n1 sh -c 'ls -d /run/vgpu/[0-9]*/limits 2>/dev/null' | wc -l)" -eq "$1" ]; }
cancel_all() { squeue -h -o %i | xargs -r scancel 2>/dev/null; }

test_jobs_are_packed_by_memory() {
  local small
  for _ in 1 2 3 4 5 6; do batch -w n1 --gpu-mem=5G --wrap 'sleep 100' >/dev/null; done
  true_that "of six jobs with 5G, two run on two GPUs of 8G" eventually states_are "4 PENDING 2 RUNNING"
  sleep 1
  equal "the others" "4 PENDING 2 RUNNING" "$(states)"
  equal "their GPUs" "0 1" "$(scontrol -d show job | sed -n 's/.* GRES=shard:5(IDX:\(.*\))/\1/p' | sort | xargs)"
  scancel "$(squeue -h -t R -o %i | head -n 1)"
  true_that "when one ends, the next one starts" eventually states_are "3 PENDING 2 RUNNING"
  scancel -t PENDING
  small=$(batch -w n1 --gpu-mem=3G --wrap 'sleep 100')
  true_that "a job with 3G fits beside one with 5G" eventually runs "$small"
  cancel_all
}

test_what_a_job_is_charged() {
  local script=$work/script
  equal "a size that is rounded up" 3 "$(shards srun --gpu-mem=2.1G)"
  equal "a share" 4 "$(shards srun --gpu-mem=50%)"
  equal "the environment form" 2 "$(VGPU_MEM=2G shards srun)"
  equal "no option" none "$(srun -Q sh -c 'echo "${SLURM_SHARDS_ON_NODE:-none}"')"
  equal "salloc" 2 "$(shards salloc --gpu-mem=2G srun)"
  printf '#!/bin/sh\n#SBATCH --gpu-mem=6G\nsleep 100\n' >"$script"
  equal "#SBATCH" gres:shard:6 "$(asked "$(held "$script")")"
  equal "an array" gres:shard:7 "$(asked "$(held --array=1-3 --gpu-mem=7G --wrap true)")"
  equal "a heterogeneous job" "gres:shard:2 gres:shard:3" "$(asked "$(held --gpu-mem=2G --wrap true : --gpu-mem=3G)")"
  equal "more shards than needed" gres:shard:5 "$(asked "$(held --gpu-mem=3G --gres=shard:5 --wrap true)")"
  cancel_all
}

test_refusals_name_the_reason() {
  run srun --gpu-mem=9G true
  status_is 1
  output_has "vgpu: --gpu-mem=9G: no GPU that the job can get has more than 8G; ask for at most that"
  run srun --gpu-mem=9G --gres=gpu:2 true
  output_has "vgpu: --gpu-mem=9G: a GPU that the job can get, sim, has no more than 8G; ask for at most that"
  run salloc --gpu-mem=4G,2G true
  output_has "a job that shares a GPU gets one on each node, and there are several values; give one"
  run sbatch --gpu-mem=none --gres=shard:2 --wrap true
  output_has "without a limit a GPU cannot be shared"
}

test_a_share_of_the_time_alone_comes_with_that_share_of_the_memory() {
  local job
  equal "shards" 4 "$(shards srun --gpu-sm=50)"
  equal "the environment form" 2 "$(VGPU_SM=25 shards srun)"
  equal "its memory and time, in bytes and percent" "$((4 * gib)) 50" "$(limits_of srun --gpu-sm=50)"
  for _ in 1 2; do batch -w n1 --gpu-sm=50 --wrap 'sleep 100' >/dev/null; done
  job=$(batch -w n1 --gpu-mem=8G --wrap 'sleep 100')
  true_that "two halves and a whole share two GPUs" eventually states_are "3 RUNNING"
  equal "the GPU of the whole" "GRES=shard:8(IDX:1)" "$(scontrol -d show job "$job" | grep -o 'GRES=shard:8(IDX:.)')"
  cancel_all
}

test_whole_gpus_stay_whole_and_are_limited() {
  run srun --gres=gpu:1 --gpu-mem=4G --gpu-sm=50 sh -c 'echo "GPU $SLURM_STEP_GPUS, ${SLURM_SHARDS_ON_NODE:-no} shards"'
  status_is 0
  output_has "GPU 0, no shards"
  output_has "vgpu: gpu:1 takes a whole GPU, of which the job may use 4G; leave gpu:1 out to share one"
  equal "its limits" "$((4 * gib)) 50" "$(limits_of srun --gres=gpu:1 --gpu-mem=4G --gpu-sm=50)"
  equal "of two GPUs" "$((4 * gib)) 100 $((2 * gib)) 100" "$(limits_of srun --gres=gpu:2 --gpu-mem=4G,2G)"
  equal "--gpus" "$((4 * gib)) 100" "$(limits_of srun --gpus=1 --gpu-mem=4G)"
}

test_too_few_shards_are_raised() {
  run sbatch -H -o /dev/null --gpu-mem=3G --gres=shard:1 --wrap true
  output_has "vgpu: --gres=shard:1 is less than --gpu-mem=3G needs; raised to shard:3"
  equal "the request" gres:shard:3 "$(squeue -h -o %b)"
  cancel_all
}

test_a_waiting_job_cannot_be_made_cheaper() {
  local job
  job=$($games sbatch --parsable -H -o /dev/null --gpu-mem=4G --wrap true)
  ! $games scontrol update JobId="$job" Gres=shard:1 2>/dev/null || complain "scontrol lowered the charge"
  true_that "it is logged" grep -q "vgpu: uid 5: the job's shard:4 stands for its --gpu-mem and cannot be lowered" "$log"
  equal "the request" gres:shard:4 "$(asked "$job")"
  $games scontrol update JobId="$job" Gres=shard:6
  equal "raised" gres:shard:6 "$(asked "$job")"
  scontrol update JobId="$job" Gres=shard:1
  equal "lowered by root" gres:shard:1 "$(asked "$job")"
  cancel_all
}

# Slurm takes the last of several requests for the same gres: the job would have seven GiB for one shard.
test_shards_that_are_asked_for_twice() {
  local job
  run srun -Q --gpu-mem=7G --gres=shard:7,shard:1 touch ran
  output_has "vgpu: shard:7 and shard:1 are asked for together, and Slurm takes only the last of them; ask for shard once"
  run sbatch -o /dev/null --gres=shard:7,shard:1 --wrap="touch ran"
  output_has "ask for shard once"
  job=$($games sbatch --parsable -H -o /dev/null --gpu-mem=4G --wrap true)
  run $games scontrol update JobId="$job" Gres=shard:7,shard:1
  true_that "scontrol does not lower the charge that way" [ "$status" -ne 0 ]
  equal "the request" gres:shard:4 "$(asked "$job")"
  true_that "it is logged" grep -q "vgpu: uid 5: shard:7 and shard:1 are asked for together" "$log"
  job=$($games sbatch --parsable -H -o /dev/null --gpu-mem=7G --gres=gpu:1 --wrap true 2>/dev/null)
  run $games scontrol update JobId="$job" Gres=shard:1
  true_that "whole GPUs do not become a shard" [ "$status" -ne 0 ]
  equal "the request" gres:gpu:1 "$(asked "$job")"
  true_that "nothing ran" [ ! -e ran ]
  cancel_all
}

test_a_mistake_in_the_table_leaves_the_old_one_in_force() {
  local table=$work/lab/etc/job_submit.lua
  sed -i 's/shards = 8/shards = "eight"/' "$table"
  touch -d '+2 seconds' "$table"
  equal "the charge" 4 "$(shards srun --gpu-mem=4G)"
  true_that "it is logged" grep -q 'vgpu: job_submit.lua: sim: shards = eight: that is not a whole number' "$log"
}

# nvidia-smi shows 46068 MiB for what is sold as 48 GB. Jobs that were accepted must start on such a GPU, whatever is there already.
test_what_is_accepted_for_an_l40s_fits_on_it() {
  local options request requests
  sed 's/-- inference = /debug = /' "$etc/job_submit.lua" >job_submit.lua
  gpus='memory=46068MiB;context=64MiB;visibility_ms=0;idle_ms=100;device' \
    start_lab --gpus 1 --gpu-type l40s --shards 44 --job-submit job_submit.lua "$etc/vgpu_submit.lua"
  run srun --gpu-mem=45G true
  output_has "vgpu: --gpu-mem=45G: no GPU that the job can get has more than 44G; ask for at most that"
  for requests in mem=44G mem=100% 'mem=50% mem=22G' 'mem=25% mem=25% sm=25 sm=25' 'sm=75 mem=11G'; do
    read -ra options <<<"$requests"
    for request in "${options[@]}"; do batch -w n1 "--gpu-$request" --wrap 'sleep 100' >/dev/null; done
    true_that "jobs with $requests run side by side" eventually limited_jobs_are "${#options[@]}"
    equal "all of $requests" "${#options[@]} RUNNING" "$(states)"
    cancel_all
    eventually no_jobs && eventually no_regions
  done
}

# The file as it is shipped, with this cluster's table.
sed '/^local gpus = {$/,/^}$/c\local gpus = { sim = { shards = 8, memory = "8G" } }' "$etc/job_submit.lua" >job_submit.lua
site_options="summary=never opt_out=everybody shard_mem=1G"
start_lab --job-submit job_submit.lua "$etc/vgpu_submit.lua"
run_tests "$@"
