#!/bin/bash
# Several jobs on one GPU: the sum of their limits does not exceed it, and who does not fit is told who is there.
. "$(dirname "$0")/spank_lib.sh"

shared="-Q -w n1 --gres=shard:1"

# hold USER SIZE: a job of that user with that limit, running on the first GPU; its id is in $job. Its region is there before
# its first process: who spoils the region earlier spoils the job.
hold() {
  job=$($1 sbatch --parsable -w n1 --gres=shard:1 --gpu-mem="$2" -o /dev/null --wrap="$hold_on")
  eventually holds "$job" || complain "job $job does not run" "$(slurmd_log n1 | grep vgpu | tail)"
}

test_the_sum_counts() {
  local first
  hold "$games" 3G
  first=$job
  hold "$man" 3G
  run srun $shared --gpu-mem=2G true
  status_is 0
  run srun $shared --gpu-mem=2049M touch ran
  status_is 1
  output_has "2049MiB do not fit beside the 6GiB of its 8GiB"
  output_has "job $first (uid $(id -u games)): 3GiB"
  output_has "job $job (uid $(id -u man)): 3GiB"
  true_that "nothing ran" [ ! -e ran ]
  scancel "$first" "$job"
  eventually no_regions
  run srun $shared --gpu-mem=8G true
  status_is 0
}

test_no_limit_given_means_the_whole_gpu() {
  hold "$games" 1G
  run srun $shared --gpu-sm=50 true
  status_is 1
  output_has "8GiB do not fit"
  scancel "$job"
}

test_the_other_gpu_is_free() {
  job=$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=8G -o /dev/null --wrap="$hold_on")
  eventually holds "$job"
  run srun -Q -w n1 --gres=gpu:1 --gpu-mem=8G true
  status_is 0
  scancel "$job"
}

test_a_step_on_demand_is_admitted_too() {
  hold "$games" 5G
  run salloc -Q -w n1 --gres=shard:1 sh -c 'srun --gpu-mem=4G touch ran; srun --gpu-mem=3G echo fits'
  output_has "4GiB do not fit beside the 5GiB"
  output_has fits
  true_that "nothing ran" [ ! -e ran ]
  scancel "$job"
}

test_a_spoiled_usage_file_hides_nothing() {
  hold "$games" 5G
  on n1 $games truncate -s 0 "/run/vgpu/$job/usage"
  run srun $shared --gpu-mem=4G true
  status_is 1
  output_has "job $job (uid $(id -u games)): 5GiB"
  scancel "$job"
}

test_a_region_of_another_release_refuses_nobody() {
  local other
  hold "$games" 5G
  other=$job
  hold "$man" 1G
  # The header's layout, as a release would write it that is not here yet.
  on n1 sh -c "printf '\\377' | dd of=/run/vgpu/$other/limits bs=1 seek=8 conv=notrunc 2>/dev/null"
  run srun $shared --gpu-mem=7G true
  status_is 0
  run srun $shared --gpu-mem=8G true
  status_is 1
  output_has "job $job (uid $(id -u man)): 1GiB"
  output_lacks "job $other"
  true_that "the log says what was not counted" eval 'slurmd_log n1 | grep -q "/run/vgpu/$other.*its limits are not counted"'
  scancel "$other" "$job"
}

ran() { cat out.* | grep -cx ran; }
refused() { cat out.* | grep -c 'do not fit beside'; }
twenty() { # SIZE: jobs that, once they run, wait for each other
  local i
  rm -f out.* signs/go
  for i in {1..20}; do
    srun -w n1 --gres=shard:1 --gpu-mem="$1" -Q -J "many" sh -c "echo ran; $hold_on" >"out.$i" 2>&1 &
  done
}
sixteen_run() { [ "$(ran)" -eq 16 ]; }
all_are_answered() { [ $(($(ran) + $(refused))) -eq 20 ]; }

test_twenty_jobs_at_once() {
  # Sixteen shards on two GPUs: as many jobs as shards run at once, and each GPU has room for eight of 1 GiB.
  twenty 1G
  true_that "sixteen run at once" eventually sixteen_run
  let_go
  wait
  equal "jobs that ran" 20 "$(ran)"
  twenty 3G
  true_that "each runs or is refused" eventually all_are_answered
  local promised
  promised=$(for job in $(regions n1); do show n1 "$job" | sed -n 's/.*uuid=\(\S*\).* limit=\([0-9]*\).*/\1 \2/p'; done |
    awk '{ sum[$1] += $2 } END { for (gpu in sum) if (sum[gpu] > 8 * 1024 ^ 3) print gpu, sum[gpu] }')
  let_go
  wait
  equal "GPUs with more promised than they have" "" "$promised"
  # Slurm may send all of them to the same GPU, where two fit; on both it is four.
  true_that "two to four ran, not $(ran)" eval '[ "$(ran)" -ge 2 ] && [ "$(ran)" -le 4 ]'
  equal "the others were refused" $((20 - $(ran))) "$(refused)"
}

test_a_lock_that_is_never_given_back() {
  # Somebody holds the admission lock and does nothing. The job waits for its deadline and fails with a sentence; once the
  # lock is free, everything is as before.
  cat >locker.py <<'END'
import fcntl, os, struct, time
lock = open("/run/vgpu/.admission", "r+")
fcntl.fcntl(lock, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))  # F_OFD_SETLK
open("/run/locked", "w").close()
while os.path.exists("/run/locked"):
    time.sleep(0.1)
END
  on n1 sh -c "exec python3 $work/locker.py >/dev/null 2>&1 </dev/null &"
  eventually on n1 test -e /run/locked
  run srun $shared --gpu-mem=1G true
  status_is 1
  output_has "vgpu:"
  on n1 rm /run/locked
  run srun $shared --gpu-mem=1G true
  status_is 0
}

start_lab
run_tests "$@"
