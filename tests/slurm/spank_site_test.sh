#!/bin/bash
# What the site says in plugstack.conf, and what happens on a node that is not as it should be.
. "$(dirname "$0")/spank_lib.sh"

on_n1="-Q -w n1"
limits() { sed -n 's/.* limit=\([0-9]*\) sm=\([0-9]*\).*/\1:\2/p' <<<"$output" | xargs; }

restart() {
  "$lab" restart-slurmd "$work/lab" n1 && eventually is_idle
}
is_idle() { [ "$(sinfo -h -n n1 -N -o %T)" = idle ]; }

test_unknown_keys_and_bad_values_are_errors() {
  local bad
  for bad in nonsense nonsense=1 max_mem=much overcommit=0.5 overcommit=x fail=maybe preload=both audit=yes log=loud summary=1 \
    region_dir=relative state=relative context=50% context=GPU-a library= opt_out= shard_mem=50% default_sm=0 require_limits=perhaps region_dir; do
    configure "$bad"
    run srun $on_n1 touch ran
    true_that "$bad: nothing is submitted" [ "$status" -ne 0 ]
    output_has "vgpu: "
    output_has "${bad%%=*}"
  done
  configure nonsense=1
  "$lab" slurmd "$work/lab" n1 stop
  "$lab" slurmd "$work/lab" n1 start
  true_that "slurmd does not start with it either" grep -q "'nonsense' is not a key" "$work/lab/log/slurmd.n1.log"
  configure
  restart
  # A key that only the node has, and does not know: the step fails, and says why; no node is drained.
  cp "$SLURM_CONF" client.conf
  sed -i "s,^PlugStackConfig=.*,PlugStackConfig=$work/client.plugstack," client.conf
  cp "$work/lab/etc/plugstack.conf.d/lab.conf" client.plugstack
  configure nonsense=1
  SLURM_CONF=$work/client.conf run srun $on_n1 --gres=gpu:1 --gpu-mem=1G touch ran
  status_is 1
  output_has "'nonsense' is not a key"
  true_that "nothing ran" [ ! -e ran ]
  configure
}

test_defaults() {
  configure default_mem=3G default_sm=40
  run srun $on_n1 --gres=gpu:1 "$rank" --show
  equal "without options" "$((3 * gib)):40" "$(limits)"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=5G --gpu-sm=80 "$rank" --show
  equal "with options" "$((5 * gib)):80" "$(limits)"
  run srun $on_n1 sh -c 'echo "[$VGPU_REGION]"'
  equal "a job without a GPU" "[]" "$output"
  configure default_mem=100%
  run srun $on_n1 --gres=gpu:1 "$rank" --show
  equal "to count everybody's memory" "$((8 * gib)):100" "$(limits)"
  configure
}

test_maxima() {
  configure max_mem=4G max_sm=50
  run srun $on_n1 --gres=gpu:1 --gpu-mem=5G true
  status_is 1
  output_has "5GiB is more than the 4GiB that this site allows"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=80% true
  status_is 1
  output_has "is more than the 4GiB that this site allows"
  run srun $on_n1 --gres=gpu:1 --gpu-sm=60 true
  status_is 1
  output_has "60 is more than the 50 percent that this site allows"
  run srun $on_n1 --gres=gpu:1 --gpu-sm=20 "$rank" --show
  equal "who asks for less, or for nothing" "$((4 * gib)):20" "$(limits)"
  # The node decides, also when the client knows nothing of the maximum.
  cp "$SLURM_CONF" client.conf
  sed -i "s,^PlugStackConfig=.*,PlugStackConfig=$work/client.plugstack," client.conf
  echo "required $plugin" >client.plugstack
  SLURM_CONF=$work/client.conf run srun $on_n1 --gres=gpu:1 --gpu-mem=5G true
  status_is 1
  output_has "slurmstepd-n1: error: vgpu: --gpu-mem: 5GiB is more than the 4GiB that this site allows"
  run salloc -Q -w n1 --gres=gpu:1 env SLURM_CONF=$work/client.conf srun --gpu-mem=5G true
  output_has "slurmstepd-n1: error: vgpu: --gpu-mem: 5GiB is more than the 4GiB that this site allows"
  configure
}

test_mps() {
  configure sm=mps
  run srun $on_n1 --gres=gpu:1 --gpu-sm=35 sh -c 'echo "[$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE]"'
  equal "MPS is told the share" "[35]" "$output"
  run srun $on_n1 --gres=gpu:1 --gpu-sm=35 "$rank" --show
  output_has "launch_hooks=0"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G sh -c 'echo "[$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE]"'
  equal "and nothing without a limit" "[]" "$output"
  configure sm=live
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  output_has "launch_hooks=1"
  configure
}

# Stands in for the MPS control daemon, of which the plugin only looks who runs it.
run_daemon_as() {
  on n1 setpriv --reuid="$1" --regid="$1" --clear-groups "$work/nvidia-cuda-mps-control" infinity &
  eventually on n1 pgrep -u "$1" -x nvidia-cuda-mps >/dev/null
}
end_daemon() {
  on n1 pkill -x nvidia-cuda-mps
  wait
}

test_mps_is_found() {
  cp "$(command -v sleep)" nvidia-cuda-mps-control
  show='echo "[$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE]"; exec "$0" --show'
  run_daemon_as root
  run srun $on_n1 --gres=gpu:1 --gpu-sm=35 sh -c "$show" "$rank"
  output_has "[35]"
  output_has "launch_hooks=0"
  configure sm=option
  run srun $on_n1 --gres=gpu:1 --gpu-sm=35 sh -c "$show" "$rank"
  output_has "[]"
  output_has "launch_hooks=1"
  configure
  end_daemon
  run_daemon_as games
  run srun $on_n1 --gres=gpu:1 --gpu-sm=35 sh -c "$show" "$rank"
  output_has "[]"
  output_has "launch_hooks=1"
  end_daemon
}

test_shards() {
  configure shard_mem=1G
  run srun $on_n1 --gres=shard:3 "$rank" --show
  equal "a job's share" "$((3 * gib)):100" "$(limits)"
  run_batch -w n1 --gres=shard:2 -o out --wrap="$rank --show; srun $rank --show"
  output=$(cat out)
  equal "in a batch job" "$((2 * gib)):100 $((2 * gib)):100" "$(limits)"
  run srun $on_n1 --gres=shard:3 --gpu-mem=5G "$rank" --show
  equal "the option wins" "$((5 * gib)):100" "$(limits)"
  run srun $on_n1 --gres=gpu:1 sh -c 'echo "[$VGPU_REGION]"'
  equal "a job with a whole GPU" "[]" "$output"
  configure
}

# Where the job said nothing, a step decides, but Slurm packed the job by its shards: the rest of the GPU is others'.
test_a_step_gets_no_more_than_its_shards() {
  configure shard_mem=1G
  run $games salloc -Q -w n1 --gres=shard:1 sh -c "srun --gpu-mem=7G touch $work/signs/ran; srun --gpu-mem=512M $rank --show"
  output_has "--gpu-mem: 7GiB is more than the 1GiB that 1 shard stands for; ask for more shards"
  true_that "nothing ran" [ ! -e signs/ran ]
  equal "less is fine" "$((512 << 20)):100" "$(limits)"
  # A step without shards would not know how many there are.
  run $games salloc -Q -w n1 --gres=shard:1 sh -c "srun --gres=none --gpu-mem=7G touch $work/signs/ran; SLURM_SHARDS_ON_NODE=7 SLURM_STEP_GPUS=0 srun --gres=none true; srun $rank --show"
  output_has "this step has no GPU"
  true_that "nothing ran" [ ! -e signs/ran ]
  equal "the job's own" "$gib:100" "$(limits)"
  # Slurm gives both components the last one's option.
  run $games salloc -Q -w n1 --gres=shard:1 : -w n2 --gres=shard:1 --gpu-mem=7G srun --het-group=0,1 "$rank" --show
  equal "a heterogeneous component without an option, and one with it" "$gib:100 $((7 * gib)):100" "$(limits | xargs -n1 | sort -n | xargs)"
  configure
}

test_require_limits() {
  configure require_limits=yes
  run srun $on_n1 --gres=gpu:1 touch ran
  status_is 1
  output_has "this site wants a limit for every job with a GPU; add --gpu-mem=SIZE"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G true
  status_is 0
  run srun $on_n1 true
  status_is 0
  true_that "nothing ran" [ ! -e ran ]
  configure
}

test_opting_out() {
  configure default_mem=1G
  run $games srun $on_n1 --gres=gpu:1 --gpu-mem=none true
  status_is 1
  output_has "this site does not let uid $(id -u games) opt out"
  configure default_mem=1G "opt_out=root,@games"
  run $games srun $on_n1 --gres=gpu:1 --gpu-mem=none sh -c 'echo "[$VGPU_REGION$LD_PRELOAD]"'
  equal "a member of the group" "[]" "$output"
  run $man srun $on_n1 --gres=gpu:1 --gpu-mem=none true
  status_is 1
  # The node asks again.
  cp "$SLURM_CONF" client.conf
  sed -i "s,^PlugStackConfig=.*,PlugStackConfig=$work/client.plugstack," client.conf
  echo "required $plugin opt_out=everybody" >client.plugstack
  SLURM_CONF=$work/client.conf run $man srun $on_n1 --gres=gpu:1 --gpu-mem=none touch ran
  status_is 1
  output_has "slurmstepd-n1: error: vgpu: --gpu-mem=none: this site does not let uid $(id -u man) opt out"
  true_that "nothing ran" [ ! -e ran ]
  # It holds for the whole job.
  run_batch -w n1 --gres=gpu:1 --gpu-mem=none -o out --wrap='srun --overlap sh -c "echo [\$VGPU_REGION]"; env -u SLURM_SPANK__SLURM_SPANK_OPTION_vgpu_gpu_mem srun sh -c "echo [\$VGPU_REGION]"'
  equal "in all steps" "[] []" "$(xargs <out)"
  configure
}

test_overcommit() {
  configure overcommit=1.5
  local job
  job=$(sbatch --parsable -w n1 --gres=shard:1 --gpu-mem=8G -o /dev/null --wrap="sleep 60")
  eventually has_region "$job"
  run srun $on_n1 --gres=shard:1 --gpu-mem=4G true
  status_is 0
  run srun $on_n1 --gres=shard:1 --gpu-mem=4097M true
  status_is 1
  output_has "the 8GiB of its 12GiB promised to job $job"
  scancel "$job"
  configure
}
has_region() { regions n1 | grep -qx "$1"; }

test_summary_choices() {
  configure summary=never
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" $gib
  equal "never" granted "$output"
  configure summary=always
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G true
  output_has "peak 0B of 1GiB (0 %)"
  configure
}

logged_since() { slurmd_log n1 | tail -n +$(($1 + 1)) | grep -o 'vgpu: .*'; }
epilog_logged_since() { logged_since "$1" | grep -q 'epilog of job'; }

test_log_levels() {
  local level before logged sentence
  for level in error info debug; do
    configure log=$level
    before=$(slurmd_log n1 | wc -l)
    run srun $on_n1 --gres=gpu:1 --gpu-mem=1G --gpu-sm=40 true
    equal "log=$level: the user's terminal stays empty" "" "$output"
    eventually no_regions
    [ $level != debug ] || eventually epilog_logged_since "$before"
    logged=$(logged_since "$before")
    case $level in
      error) equal "log=error: nothing went wrong" "" "$logged" ;;
      *) true_that "log=$level: the limits" grep -q 'GPU .*: 1073741824 bytes, 40 percent' <<<"$logged" ;;
    esac
    for sentence in 'step of job [0-9]*: --gpu-mem=1G --gpu-sm=40, GPUs [0-9]' 'prolog of job [0-9]*: the job is limited' \
      'step of job [0-9]*: LD_PRELOAD=.* VGPU_REGION=/run/vgpu/' 'epilog of job [0-9]*: nothing of it is left'; do
      equal "log=$level: $sentence" $([ $level = debug ] && echo 1 || echo 0) "$(grep -c "$sentence" <<<"$logged")"
    done
  done
  configure
}

contexts() { sed -n 's/.* context=\([0-9:]*\) .*/\1/p' <<<"$output" | xargs; }
measured() { on n1 sh -c 'grep -c ^context /run/state/contexts 2>/dev/null'; }
both_are_measured() { [ "$(measured)" = 2 ]; }
one_is_measured() { [ "$(measured)" = 1 ]; }
# The simulated GPUs' contexts, in MiB, and who says so: 2 measured, 3 the site.
mib=$((1 << 20))

test_contexts_are_measured_once() {
  local first
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  equal "nothing was measured" 0:0 "$(contexts)"
  configure state=/run/state/contexts
  restart
  true_that "slurmd measures when it starts" eventually both_are_measured
  equal "for root alone to write" "root 644" "$(on n1 stat -c '%U %a' /run/state/contexts)"
  eventually on n1 sh -c '[ $(grep -c " context=67108864 context-from=measured " /run/vgpu/node) = 2 ]' ||
    complain "the node file does not have it" "$(on n1 cat /run/vgpu/node)"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  equal "the job's region knows it" $((64 * mib)):2 "$(contexts)"
  # Another driver is another figure; so is another GPU.
  first=$(on n1 cat /run/state/contexts)
  restart
  eventually on n1 grep -q context-from=measured /run/vgpu/node
  equal "not again for the same driver" "$first" "$(on n1 cat /run/state/contexts)"
  on n1 sed -i 's/driver=[0-9.]*/driver=1.2.3/' /run/state/contexts
  on n1 rm /run/vgpu/node
  restart
  true_that "again for another driver" eventually on n1 sh -c '! grep -q driver=1.2.3 /run/state/contexts'
  # The site wins, also without a restart.
  configure state=/run/state/contexts context=450M
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  equal "the site wins" $((450 * mib)):3 "$(contexts)"
  # What others can write is not believed.
  on n1 chown games /run/state/contexts
  on n1 sed -i 's/bytes=[0-9]*/bytes=1024/' /run/state/contexts
  configure state=/run/state/contexts
  on n1 chown games /run/state/contexts
  on n1 rm /run/vgpu/node
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  equal "a file that is not root's" 0:0 "$(contexts)"
  on n1 rm -r /run/state
  configure
  restart
}

test_contexts_are_not_measured_under_a_job() {
  local job
  configure state=/run/state/contexts
  job=$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o /dev/null --wrap="$hold_on")
  eventually holds "$job"
  "$lab" restart-slurmd "$work/lab" n1
  true_that "the GPU that is free" eventually one_is_measured
  run srun $on_n1 --overlap --jobid="$job" "$rank" --show
  true_that "the other is the job's" eval '! on n1 grep -q "$(sed -n "s/.* uuid=\(\S*\).*/\1/p" <<<"$output")" /run/state/contexts'
  let_go
  eventually no_regions
  # By hand, now that both are free.
  output=$(on n1 "$build/utils/vgpuctl/vgpuctl" check --measure --no-color --plugstack "$work/lab/etc/plugstack.conf" 2>&1)
  equal "both" 2 "$(grep -c '^ok *GPU [01]: a context takes 64MiB, 8GiB can be had in all, in blocks of 2MiB; measured with driver' <<<"$output")"
  true_that "kept" both_are_measured
  on n1 rm -r /run/state
  configure
  restart
}

test_nobody_waits_for_a_measurement() {
  local start
  cat >slow-probe <<END
#!/bin/sh
case "\$*" in *--measure*) touch /run/measuring; sleep 12 ;; esac
exec $build/utils/vgpu-probe/vgpu-probe "\$@"
END
  chmod 755 slow-probe
  configure state=/run/state/contexts probe=$work/slow-probe
  start=$SECONDS
  restart
  eventually on n1 test -e /run/measuring
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  status_is 0
  equal "the job runs without the figure" 0:0 "$(contexts)"
  true_that "and does not wait: $((SECONDS - start)) s" [ $((SECONDS - start)) -lt 10 ]
  configure
  restart
}

test_missing_library_fails_closed() {
  configure library=$work/nowhere.so
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G touch ran
  status_is 1
  output_has "vgpu: the library $work/nowhere.so: No such file or directory; install it"
  true_that "nothing ran" [ ! -e ran ]
  cp "$library" writable.so
  chmod 777 writable.so
  configure library=$work/writable.so
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G touch ran
  status_is 1
  output_has "must be root's"
  configure fail=open library=$work/nowhere.so
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G sh -c 'echo "[$VGPU_REGION$LD_PRELOAD]"'
  status_is 0
  output_has "[]"
  output_has "fails open: the step runs WITHOUT its GPU limits"
  # Failing open is for what the site must repair, not for what the user asked.
  run srun $on_n1 --gres=gpu:1 --gpu-mem=9G touch ran
  status_is 1
  true_that "nothing ran" [ ! -e ran ]
  configure
}

forget_node() { on n1 rm -f /run/vgpu/node; }

test_nvml_absent() {
  configure nvml=/nowhere/libnvidia-ml.so.1
  forget_node
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G touch ran
  status_is 1
  output_has "vgpu: NVML cannot be loaded"
  run srun $on_n1 --gres=gpu:1 true
  status_is 0
  true_that "nothing ran" [ ! -e ran ]
  configure nvml=/nowhere/libnvidia-ml.so.1 fail=open
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G echo ran
  status_is 0
  output_has "WITHOUT its GPU limits"
  configure
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  equal "repaired, without a restart" "$gib:100" "$(limits)"
}

test_nvml_hanging() {
  printf '#include <unistd.h>\nint nvmlInit_v2(void) { for (;;) pause(); }\n%s\n' \
    "$(for f in ErrorString DeviceGetCount_v2 DeviceGetHandleByIndex_v2 DeviceGetUUID DeviceGetMinorNumber DeviceGetPciInfo_v3 DeviceGetMemoryInfo; do echo "int nvml$f(void) { return 1; }"; done)" |
    gcc -shared -fPIC -x c -o hanging.so - || complain "no compiler"
  configure nvml=$work/hanging.so
  forget_node
  local start=$SECONDS
  "$lab" restart-slurmd "$work/lab" n1
  true_that "slurmd starts without waiting for the deadline" [ $((SECONDS - start)) -lt 10 ]
  eventually is_idle
  run srun $on_n1 --gres=gpu:1 true
  status_is 0
  start=$SECONDS
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G touch ran
  status_is 1
  output_has "vgpu: NVML did not answer within 10000 ms"
  true_that "within the deadlines of prolog and step" [ $((SECONDS - start)) -lt 30 ]
  true_that "nothing ran" [ ! -e ran ]
  configure
  restart
}

test_region_directory_elsewhere() {
  configure region_dir=/run/other
  restart
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G sh -c "echo \$VGPU_REGION; $rank --show"
  output_has "/run/other/"
  output_has "limit=$gib "
  true_that "a file system of its own" on n1 sh -c 'grep -q "tmpfs /run/other\|/run/other tmpfs" /proc/mounts'
  configure
  restart
}

test_full_filesystem() {
  # Half a page is not enough for a region: the job is told, and the next one finds room.
  on n1 mount -o remount,size=16k /run/vgpu
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G touch ran
  status_is 1
  output_has "vgpu:"
  on n1 mount -o remount,size=64m /run/vgpu
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G true
  status_is 0
  true_that "nothing ran" [ ! -e ran ]
}

start_lab
run_tests "$@"
