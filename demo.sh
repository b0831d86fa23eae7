#!/bin/bash
# Shows slurm-vgpu at work: a private Slurm cluster of two nodes on simulated GPUs, a few jobs, and no trace afterwards.
# Needs root and Debian's Slurm packages, no GPU. Builds what is missing in build/ first.
#   ./demo.sh [BUILD_DIRECTORY]
set -u
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
source=$PWD
build=$(readlink -m "${1:-build}")
lab=$source/tests/slurm/lab.sh

"$lab" check || exit
if [ ! -e "$build/spank/spank_vgpu.so" ] || [ ! -e "$build/libvgpu/libvgpu.so" ] || [ ! -e "$build/tests/simgpu/tests/simgpu_client" ]; then
  [ "$build" = "$source/build" ] || { echo "demo.sh: $build holds no complete build; run ./check.sh --build" >&2 && exit 1; }
  ./check.sh --build || exit 1
fi

work=$(mktemp -d /tmp/vdemo-XXXXXX) || exit 1
chmod 755 "$work"
trap '"$lab" stop "$work/cluster"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cp "$build/libvgpu/libvgpu.so" "$build/tests/simgpu/tests/simgpu_client" "$work/" || exit 1

# A program that takes N MiB of GPU memory and keeps them for a moment. Any CUDA program would do.
cat >"$work/take" <<END
#!/bin/sh
answer=\$( (printf 'ctx 0\nalloc %s\n' \$((\$1 << 20)); sleep \${2:-2}) | $work/simgpu_client | tail -n 1)
case \$answer in
  0*) echo "rank \$SLURM_PROCID on \$(hostname) has its \$1 MiB" ;;
  *) echo "rank \$SLURM_PROCID on \$(hostname) got no \$1 MiB: CUDA error \${answer%% *}" && exit 1 ;;
esac
END
chmod 755 "$work/take" "$work/libvgpu.so" "$work/simgpu_client"
PATH=$work:$PATH

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
show() {
  printf '$ %s\n' "$*"
  "$@"
}

say "Two nodes with two GPUs of 8 GiB each, shared by 16 jobs at most"
"$lab" start "$work/cluster" --cpus 8 --owner $$ --simgpu "$build/tests/simgpu" \
  --simgpu-config 'memory=8GiB;context=64MiB;visibility_ms=0;idle_ms=100;device;device' \
  --plugstack "required $build/spank/spank_vgpu.so library=$work/libvgpu.so probe=$build/libvgpu/node/vgpu-probe" || exit 1
eval "$("$lab" env "$work/cluster")"
show sinfo -N -o '%N %T %G'

say "2 GiB for all ranks of a job together: the fourth rank with 500 MiB is refused, and told why"
show srun -Q -w n1 -n4 --gres=gpu:1 --gpu-mem=2G take 500

say "Each node has its own account"
show srun -Q -N2 --gres=gpu:1 --gpu-mem=2G take 1500

say "Two jobs on one GPU: what is promised to one cannot be promised to another"
sbatch --parsable -w n1 --gres=shard:1 --gpu-mem=6G -o /dev/null --wrap='sleep 30' >"$work/first" || exit 1
until [ -n "$(squeue -h -t R)" ]; do sleep 0.1; done
show srun -Q -w n1 --gres=shard:1 --gpu-mem=3G take 100
show srun -Q -w n1 --gres=shard:1 --gpu-mem=2G take 100
scancel "$(cat "$work/first")"

say "A value that makes no sense does not even reach the queue"
show srun -Q --gres=gpu:1 --gpu-mem=8X take 100

say "After the jobs, nothing is left on the nodes; after the demo, nothing of the cluster"
until [ -z "$(squeue -h)" ]; do sleep 0.1; done
sleep 0.5
echo '$ ls /run/vgpu        (on n1)'
"$lab" node "$work/cluster" n1 -- ls /run/vgpu
