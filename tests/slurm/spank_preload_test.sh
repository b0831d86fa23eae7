#!/bin/bash
# The library reaches every task, once, whatever way it was started, and no task of a job without limits.
. "$(dirname "$0")/spank_lib.sh"

on_n1="-Q -w n1"
limited="$on_n1 --gres=gpu:1 --gpu-mem=1G"

test_every_rank() {
  run srun -Q -N2 -n6 --gres=gpu:1 --gpu-mem=1G printenv LD_PRELOAD
  equal "ranks with the library" "6" "$(grep -cx "$library" <<<"$output")"
}

test_merged_with_the_users_own() {
  local own=$work/own.so
  cp "$library" "$own"
  LD_PRELOAD=$own run srun $limited printenv LD_PRELOAD
  equal "in front of the user's" "$library:$own" "$output"
  LD_PRELOAD="$own $library" run srun $limited printenv LD_PRELOAD
  equal "never twice" "$library:$own" "$output"
  run_batch -w n1 --gres=gpu:1 --gpu-mem=1G -o out --wrap='printenv LD_PRELOAD; srun printenv LD_PRELOAD; srun --mem=40 sh -c "srun --mem=40 --overlap printenv LD_PRELOAD"'
  equal "in the batch script and its steps" "$library $library $library" "$(xargs <out)"
}

test_export_none() {
  run srun $limited --export=NONE /usr/bin/printenv LD_PRELOAD VGPU_REGION
  output_has "$library"
  output_has /run/vgpu/
  run srun $limited --export=LD_PRELOAD=,VGPU_REGION=/nowhere /usr/bin/printenv LD_PRELOAD VGPU_REGION
  output_has "$library"
  output_lacks nowhere
  run_batch --export=NONE -w n1 --gres=gpu:1 --gpu-mem=1G -o out --wrap='printenv LD_PRELOAD'
  equal "sbatch --export=NONE" "$library" "$(xargs <out)"
}

test_an_edited_region_variable_is_put_right() {
  VGPU_REGION=/tmp/mine run srun $limited printenv VGPU_REGION
  output_has /run/vgpu/
}

test_a_job_submitted_from_within_a_job() {
  # It inherits the outer job's variables. Without limits of its own it must not hang on to them; with them, its own count.
  cat >inner.sh <<END
#!/bin/bash
#SBATCH -w n1 --gres=gpu:1
echo "[\${LD_PRELOAD-unset}][\${VGPU_REGION-unset}]"
srun sh -c 'echo "[\${VGPU_REGION-unset}]"'
END
  cat >outer.sh <<END
#!/bin/bash
#SBATCH -w n1 --gres=gpu:1 --gpu-mem=1G -o $work/outer.out
export LD_PRELOAD=\$LD_PRELOAD:$work/own.so
sbatch -o $work/inner.1 $work/inner.sh
srun sbatch -o $work/inner.2 $work/inner.sh
srun sbatch -w n1 --gres=gpu:1 --gpu-mem=3G -o $work/inner.3 --wrap="$rank --show; srun $rank --show"
END
  cp "$library" own.so
  run sbatch -Q outer.sh
  eventually test -e inner.3
  eventually no_jobs
  equal "variables of a job submitted by the script" "[$work/own.so][unset] [unset]" "$(xargs <inner.1)"
  equal "variables of a job submitted by a step" "[$work/own.so][unset] [unset]" "$(xargs <inner.2)"
  equal "a job with a limit of its own" 2 "$(grep -c " limit=$((3 * gib)) " inner.3)"
}

test_job_arrays() {
  run_batch --array=1-3 -w n1 --gres=shard:1 --gpu-mem=1G -o array.%a --wrap="$rank --show"
  equal "tasks with a region of their own" 3 "$(cat array.[123] | grep '^job=' | sort -u | wc -l)"
  equal "and the limit" 3 "$(cat array.[123] | grep -c "limit=$gib ")"
}

test_het_jobs() {
  # Slurm 22.05 tells both steps the last component's option; the prologs know better.
  run srun -Q -w n1 --gres=gpu:1 --gpu-mem=1G "$rank" --show : -w n2 --gres=gpu:1 --gpu-mem=3G "$rank" --show
  equal "one component each" "limit=$gib limit=$((3 * gib))" "$(grep -o 'limit=[0-9]*' <<<"$output" | sort | xargs)"
  run srun -Q -w n1 --gres=gpu:1 --gpu-mem=3G "$rank" --show : -w n2 --gres=gpu:1 --gpu-mem=1G "$rank" --show
  equal "the other way round" "limit=$gib limit=$((3 * gib))" "$(grep -o 'limit=[0-9]*' <<<"$output" | sort | xargs)"
}

test_pty() {
  run script -qec "srun $limited --pty printenv LD_PRELOAD" /dev/null
  output_has "$library"
}

test_interactive_step_and_sattach() {
  run salloc -Q -w n1 --gres=gpu:1 --gpu-mem=1G srun --interactive --pty "$rank" --show
  output_has "limit=$gib"
  local job
  job=$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o /dev/null --wrap="srun sh -c 'until [ -e signs/go ]; do $rank --show; sleep 0.2; done'")
  eventually step_runs "$job.0"
  timeout 120 sattach "$job.0" >attached.out 2>&1 &
  true_that "sattach shows what the step prints" eventually grep -q "limit=$gib" attached.out
  let_go
  wait
}
step_runs() { squeue -h -s -j "${1%.*}" -o %i | grep -qx "$1"; }

# A real MPI program, without a compiler for it. Each rank writes a file of its own: launchers may mix or lose lines.
cat >mpi.py <<'END'
import ctypes, os
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
world = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world"))
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
with open("mpi." + str(rank.value), "w") as out:
    print("of", size.value, os.environ.get("LD_PRELOAD"), os.environ.get("VGPU_REGION"), file=out)
mpi.MPI_Finalize()
END
ranks_with_the_library() { cat mpi.[0-3] | grep -c "^of 4 $library /run/vgpu/[0-9]*$"; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,tcp

test_open_mpi_by_srun() {
  [ -e /usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so ] || { echo "not seen: srun --mpi=pmix needs libpmix-dev" && return; }
  rm -f mpi.[0-3]
  run srun $limited --mpi=pmix -n4 env TMPDIR="$work/lab/tmp/n1" python3 mpi.py
  status_is 0
  equal "ranks of one MPI program with the library" 4 "$(ranks_with_the_library)"
}

test_open_mpi_by_mpirun() {
  command -v mpirun >/dev/null || { echo "not seen: Open MPI is missing; install openmpi-bin" && return; }
  # orted is started by srun, one per node, and starts the ranks: they inherit what the step was given.
  rm -f mpi.[0-3]
  run salloc -Q -N2 -n4 --gres=gpu:1 --gpu-mem=1G env TMPDIR="$work/signs" mpirun --mca plm slurm -n 4 python3 mpi.py
  status_is 0
  equal "ranks of one MPI program with the library" 4 "$(ranks_with_the_library)"
}

test_the_summary() {
  run srun $limited "$rank" $((512 << 20))
  output_has "vgpu: job"
  output_has "on n1, GPU GPU-516d6770-7500-4000-8000-000000000001: peak 512MiB of 1GiB (50 %), 0 allocations refused, 0.0 s throttled"
  run srun $limited -n3 "$rank" $((512 << 20)) with 3 signs/answered
  output_has "peak 1GiB of 1GiB (100 %), 1 allocation refused"
  equal "one line per GPU, whatever the number of ranks" 1 "$(grep -c peak <<<"$output")"
  run srun $limited true
  equal "a step that used nothing" "" "$output"
}

start_lab
run_tests "$@"
