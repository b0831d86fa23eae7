#!/bin/bash
# What is promised can be had: GPUs of 16 GiB, of which the driver keeps 256 MiB for itself, filled up by jobs with the real library.
. "$(dirname "$0")/spank_lib.sh"
[ -e "$build/libvgpu/libvgpu.so" ] || { echo "skipped: libvgpu.so was not built" && exit 77; }
cp "$build/libvgpu/libvgpu.so" "$work/limiter.so" && chmod 755 "$work/limiter.so" || exit 1
library=$work/limiter.so
gpus='memory=16GiB;reserved=256MiB;context=300MiB;visibility_ms=0;idle_ms=100;device;device'

# fill.py NAME: takes pieces of 64 MiB until it gets no more, says how many, and holds them until it may go on.
cat >fill.py <<END
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
if cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) != 0: sys.exit("no context")
taken = 0
while cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64 << 20)) == 0: taken += 1
open("$work/signs/filled-" + sys.argv[1], "w").write(str(taken))
while not os.path.exists("$work/signs/go"): time.sleep(0.1)
END

# fill NAME SIZE: a job with that limit that fills it up, on the first GPU.
fill() {
  job=$(sbatch --parsable -w n1 --gres=shard:1 --gpu-mem="$2" -o "$work/out.$1" --wrap="python3 $work/fill.py $1")
  eventually has_answered "$1" "$job" || complain "job $job has no answer" "$(cat "out.$1")"
}
has_answered() { [ -s "signs/filled-$1" ] || has_ended "$2"; }
filled() { cat "signs/filled-$1" 2>/dev/null; }
# Who is full because of its limit has a line of ours that says so; who meets the end of the GPU before has none.
stopped_by_limit() { true_that "$1 was stopped by its limit" grep -q "> $2 limit" "out.$1"; }

test_two_halves_are_both_there() {
  fill a 50%
  fill b 50%
  # 8064 MiB each, of which 300 MiB are the context's.
  equal "the first" $(((8064 - 300) / 64)) "$(filled a)"
  equal "the second" $(((8064 - 300) / 64)) "$(filled b)"
  stopped_by_limit a 8064MiB
  stopped_by_limit b 8064MiB
  let_go
}

test_four_quarters_fit_and_a_fifth_is_told() {
  local name
  for name in a b c d; do fill $name 4000M; done
  for name in a b c d; do
    equal "job $name" $(((4000 - 300) / 64)) "$(filled $name)"
    stopped_by_limit $name 4000MiB
  done
  run srun -Q -w n1 --gres=shard:1 --gpu-mem=200M touch ran
  status_is 1
  output_has "200MiB do not fit beside the 16000MiB of its 15.75GiB"
  true_that "nothing ran" [ ! -e ran ]
  run srun -Q -w n1 --gres=shard:1 --gpu-mem=128M true
  status_is 0
  let_go
}

test_all_of_it_is_what_can_be_had() {
  local size
  for size in 16G 100%; do
    run srun -Q -w n1 --gres=gpu:1 --gpu-mem=$size "$rank" --show
    output_has " limit=$(((16384 - 256) << 20)) "
    output_has " usable=$(((16384 - 256) << 20))"
  done
  run srun -Q -w n1 --gres=gpu:1 --gpu-mem=16385M true
  status_is 1
  output_has "16385MiB is more than GPU 0 of this node has, 15.75GiB"
}

start_lab
run_tests "$@"
