#!/bin/bash
# The options: what is understood, what is refused, and where.
. "$(dirname "$0")/spank_lib.sh"

on_n1="-Q -w n1"

limit_of() { # SRUN OPTION...: the limits that the step finds
  run srun $on_n1 "$@" "$rank" --show
  sed -n 's/.* limit=\([0-9]*\) sm=\([0-9]*\).*/\1:\2/p' <<<"$output" | xargs
}

test_help_explains_the_options() {
  local command
  for command in srun sbatch salloc; do
    run $command --help
    output_has "--gpu-mem=SIZE"
    output_has "--gpu-sm=PERCENT"
    output_has "--mem-per-gpu"
  done
}

test_sizes() {
  local pair
  for pair in 2G:$((2 * gib)) 512M:$((512 << 20)) 1048576K:$gib 1.5G:$((3 * gib / 2)) 0.005T:5497558138 50%:$((4 * gib)) \
    12.5%:$gib 2g:$((2 * gib)) 2GiB:$((2 * gib)); do
    equal "--gpu-mem=${pair%:*}" "${pair#*:}:100" "$(limit_of --gres=gpu:1 --gpu-mem="${pair%:*}")"
  done
}

test_sm() {
  equal "--gpu-sm" "$((8 * gib)):50" "$(limit_of --gres=gpu:1 --gpu-sm=50)"
  equal "--gpu-sm with a percent sign" "$gib:1" "$(limit_of --gres=gpu:1 --gpu-sm=1% --gpu-mem=1G)"
  run srun $on_n1 --gres=gpu:1 --gpu-sm=50 "$rank" --show
  output_has "launch_hooks=1"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  output_has "launch_hooks=0"
}

test_a_value_per_gpu() {
  equal "a list" "$gib:100 $((2 * gib)):100" "$(limit_of --gres=gpu:2 --gpu-mem=1G,25%)"
  equal "one for all" "$gib:100 $gib:100" "$(limit_of --gres=gpu:2 --gpu-mem=1G)"
  run srun $on_n1 --gres=gpu:1 --gpu-mem=1G,2G true
  status_is 1
  output_has "vgpu: --gpu-mem"
}

bad_memory=("" 0 -1G +1G 0G 0% 101% 1000000000000T 99999999999999999999 1G1 "1G " " 1G" 8X G .G 1..5G 1,5,G , 1G, ,1G 1e3 0x10 nan inf
  50%% "1 G" "８G" "1G
2G" none1 $'1G\x01' "$(printf '1%.0s' {1..5000})")
bad_sm=("" 0 -5 101 1000 50.5 50%% 5O abc "50 " " 50" 50,50 +50 ５０ 99999999999999999999)

test_bad_values_are_refused_at_submit() {
  local value
  for value in "${bad_memory[@]}"; do
    run srun $on_n1 --gres=gpu:1 --gpu-mem="$value" true
    status_is 255
    output_has "vgpu: --gpu-mem"
  done
  for value in "${bad_sm[@]}"; do
    run srun $on_n1 --gres=gpu:1 --gpu-sm="$value" true
    status_is 255
    output_has "vgpu: --gpu-sm"
  done
  equal "jobs submitted by all of that" "" "$(on n1 ls /run/vgpu | grep -x '[0-9]*')"
}

test_a_refusal_says_what_was_wrong_and_gives_an_example() {
  run srun $on_n1 --gres=gpu:1 --gpu-mem=8X true
  output_has "8X"
  output_has "8G"
  run sbatch -Q --wrap=true --gres=gpu:1 --gpu-sm=0
  status_is 255
  output_has "vgpu: --gpu-sm=0"
  run salloc -Q --gres=gpu:1 --gpu-mem=-1G true
  status_is 255
}

test_batch_directives() {
  printf '#!/bin/sh\n#SBATCH -w n1 --gres=gpu:1 --gpu-mem=3G\n#SBATCH --gpu-sm=30 -o %s/batch.out\n%s --show\n' "$work" "$rank" >batch.sh
  run_batch batch.sh
  status_is 0
  equal "limits from #SBATCH" "limit=$((3 * gib)) sm=30" "$(grep -o 'limit=.* sm=[0-9]*' batch.out)"
  printf '#!/bin/sh\n#SBATCH --gpu-mem=bad\ntrue\n' >batch.sh
  run sbatch -Q batch.sh
  status_is 255
}

test_environment_form() {
  equal "VGPU_MEM and VGPU_SM" "$gib:25" "$(VGPU_MEM=1G VGPU_SM=25 limit_of --gres=gpu:1)"
  equal "the option wins" "$((2 * gib)):100" "$(VGPU_MEM=1G limit_of --gres=gpu:1 --gpu-mem=2G)"
  VGPU_MEM=1G run_batch -w n1 --gres=gpu:1 -o env.out --export=NONE --wrap="$rank --show"
  true_that "VGPU_MEM counts for sbatch" grep -q "limit=$gib " env.out
  VGPU_MEM=0 run srun $on_n1 --gres=gpu:1 true
  status_is 1
  output_has "vgpu: --gpu-mem=0"
  # What an enclosing job was given counts for its steps, not the variable that is still around.
  VGPU_MEM=1G run_batch -w n1 --gres=gpu:1 -o env.out --gpu-mem=2G --wrap="srun $rank --show"
  status_is 0
  true_that "the job's option wins in its steps" grep -q "limit=$((2 * gib)) " env.out
}

test_a_forged_environment_is_refused() {
  local value
  for value in bad 0 -1G "$(printf '9%.0s' {1..300})"; do
    # Where Slurm itself keeps options on their way: the first is checked by the client, the second gets past it.
    _SLURM_SPANK_OPTION_vgpu_gpu_mem=$value run srun $on_n1 --gres=gpu:1 true
    status_is 1
    output_has "vgpu: --gpu-mem"
  done
  # A client with a plugin of the user's own checks nothing at all.
  cp "$SLURM_CONF" forged.conf
  sed -i "s,^PlugStackConfig=.*,PlugStackConfig=$work/forged.plugstack," forged.conf
  printf '%s\n' '#include <slurm/spank.h>' 'SPANK_PLUGIN(vgpu, 1)' \
    'static int take(int v, const char *a, int r) { return 0; }' \
    'static struct spank_option mem = {"gpu-mem", "X", "x", 1, 0, take};' \
    'int slurm_spank_init(spank_t s, int c, char **v) { return spank_option_register(s, &mem); }' |
    gcc -shared -fPIC -x c -o forged.so - && echo "required $work/forged.so" >forged.plugstack
  for value in bad 0 9G -1; do
    SLURM_CONF=$work/forged.conf run srun $on_n1 --gres=gpu:1 --gpu-mem="$value" touch ran
    true_that "a forged $value fails the step" [ "$status" -ne 0 ]
    output_has "vgpu: --gpu-mem"
    SLURM_CONF=$work/forged.conf run_batch -w n1 --gres=gpu:1 --gpu-mem="$value" -o forged.out --wrap="touch ran"
    true_that "a forged $value fails the job" [ "$status" -ne 0 ]
  done
  true_that "nothing ran" [ ! -e ran ]
}

test_no_gpu_no_limit() {
  run srun $on_n1 --gpu-mem=1G touch ran
  status_is 1
  output_has "--gres=gpu:1"
  # Nor does pretending help: what Slurm gave is noted by the prolog.
  SLURM_STEP_GPUS=0 SLURM_JOB_GPUS=0 run srun $on_n1 --gpu-mem=1G touch ran
  status_is 1
  true_that "nothing ran" [ ! -e ran ]
}

test_larger_than_the_gpu() {
  run srun $on_n1 --gres=gpu:1 --gpu-mem=9G true
  status_is 1
  output_has "9GiB is more than GPU 0 of this node has, 8GiB"
}

# But that a job with a GPU finds that nothing was decided about it.
test_without_options_nothing_happens() {
  run srun $on_n1 --gres=gpu:1 sh -c 'echo "[$VGPU_REGION$LD_PRELOAD]"; ls /run/vgpu/[0-9]* 2>/dev/null; true'
  status_is 0
  equal "output" $'[]\nundecided' "$output"
  run srun $on_n1 sh -c 'echo "[$VGPU_REGION$LD_PRELOAD]"; ls -d /run/vgpu/[0-9]* 2>/dev/null; true'
  status_is 0
  equal "output without a GPU" "[]" "$output"
}

start_lab
run_tests "$@"
