#!/bin/bash
# Shows slurm-vgpu at work: a private Slurm cluster of two nodes and a few jobs, on the machine's own GPU where there is an NVIDIA
# driver, else on simulated ones. Needs root on Debian. What is missing is installed, and built in build/, first; that stays. The
# cluster goes. The programs of its jobs are in tests/demo/bin/.
set -u
usage() {
  cat <<'END'
usage: ./demo.sh [--shell] [--simulated] [BUILD_DIRECTORY]
  --shell       afterwards a prompt on the cluster, which goes when you leave the prompt
  --simulated   on simulated GPUs, also where there is a driver
END
}

shell= simulated=
while [ $# -gt 0 ]; do
  case $1 in
    --shell) shell=yes ;;
    --simulated) simulated=simulated ;;
    --help | -h) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) break ;;
  esac
  shift
done
exec 3<&0 </dev/null # srun would read what is typed for the prompt
home=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
build=$(readlink -m "${1:-$home/build}")
export DEMO_LAB=$home/tests/slurm/lab.sh
. "$home/tests/demo/lib.sh" && . "$home/tests/demo/gpu.sh" || exit 1

# ---- what is needed -------------------------------------------------------------------------------------------------

[ "$(id -u)" -eq 0 ] || { echo "demo.sh: a private Slurm cluster needs root" >&2 && exit 1; }
built() { env -u MAKEFLAGS make -q -C "$build" -o Makefile -o config.h demo >/dev/null 2>&1; }
if ! built || ! "$DEMO_LAB" check >/dev/null; then
  [ "$build" = "$home/build" ] || { echo "demo.sh: $build is not up to date; run make -C $build demo" >&2 && exit 1; }
  "$home/check.sh" --demo && "$DEMO_LAB" check || exit 1
fi

work=
clean_up() {
  trap '' INT TERM HUP # whoever cannot wait does not make it leave things behind
  [ -n "$work" ] || return
  "$DEMO_LAB" stop "$work/cluster"
  cd / && rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
work=$(mktemp -d /tmp/vdemo-XXXXXX) && chmod 755 "$work" && cd "$work" || exit 1
cp -r "$home/tests/demo/bin" . && cp "$build/simgpu/simgpu-client" bin/ && cp "$build/libvgpu/libvgpu.so" . && chmod -R a+rX . || exit 1
export DEMO_CLUSTER=$work/cluster PATH=$work/bin:$build/utils/vgpuctl:$build/utils/vgpu-run:$PATH

# ---- the cluster ----------------------------------------------------------------------------------------------------

choose_gpu $simulated
scaled() { echo $(($1 * unit)); }
say "A Slurm cluster of two nodes, with $gpu, that Slurm counts as 8 shards"
sed "/^local gpus = {\$/,/^}\$/c\\local gpus = { sim = { shards = 8, memory = \"$(scaled 8)G\" } }" "$home/etc/job_submit.lua" >job_submit.lua
"$DEMO_LAB" start cluster --cpus 8 --gpus 1 --owner $$ "${gpu_options[@]}" \
  --job-submit job_submit.lua "$home/etc/vgpu_submit.lua" \
  --plugstack "required $build/spank/spank_vgpu.so library=$work/libvgpu.so probe=$build/utils/vgpu-probe/vgpu-probe state=off $plugin_keys" || exit 1
eval "$("$DEMO_LAB" env cluster)"
# The record of ended jobs goes where it belongs, but into the nodes' memory.
for node in n1 n2; do on $node sh -c 'mount -t tmpfs tmpfs /var/log && mkdir /var/log/vgpu' || exit 1; done
show sinfo -N -o '%N %T %G'

# ---- the story ------------------------------------------------------------------------------------------------------

say "$(scaled 2) GiB for all ranks of a job together: not all of four ranks get $(scaled 500) MiB, and are told why"
show srun -Q -w n1 -n4 --gpu-mem="$(scaled 2)G" take "$(scaled 500)"

say "Each node has its own account"
show srun -Q -N2 --gpu-mem="$(scaled 2)G" take "$(scaled 1500)" 0

say "What makes no sense, or can never be, does not even reach the queue"
show srun -Q --gpu-mem=8X take 100
show srun -Q --gpu-mem="$(scaled 9)G" take 100

say "The scheduler packs jobs by GPU memory: $(scaled 4) + $(scaled 3) GiB share a GPU, $(scaled 2) GiB more must wait"
submit -w n1 --gpu-mem="$(scaled 4)G" --wrap "insist $(scaled 4500)"
first=$job
until_true says "$first" 'CUDA error'
submit -w n1 --gpu-mem="$(scaled 3)G" --wrap "insist $(scaled 2000)"
second=$job
until_true says "$second" 'has its'
submit -w n1 --gpu-mem="$(scaled 2)G" --wrap "insist $(scaled 1000)"
third=$job
until_true waits "$third"
show squeue -o '%6i %8T %14b %R'

say "On the node: who uses what"
show_on n1 vgpuctl list -o jobid,user,gpu,mem-used,mem-limit,mem%,procs,refused,state

say "Job $first asks in vain for $(scaled 4500) MiB of its $(scaled 4) GiB, until its limit is changed while it runs"
show_on n1 vgpuctl set "$first" --gpu-mem="$(scaled 5)G"
until_true says "$first" now
show cat "slurm-$first.out"

on n1 vgpuctl metrics --no-sm >/dev/null # as its timer does, for the averages of the report

say "When a job ends, its share goes to the one that waited"
show scancel "$second"
until_true says "$third" 'has its'
show_on n1 vgpuctl list -o jobid,user,gpu,mem-used,mem-limit,mem%,procs,refused,state

say "A share of the GPU's time: the same work with all of it, and with a quarter"
show srun -Q -w n1 --gpu-mem="$(scaled 1)G" compute 1
show srun -Q -w n1 --gpu-mem="$(scaled 1)G" --gpu-sm=25 compute 1

say "After the jobs: what each has used is on record, and nothing else is left"
on n1 vgpuctl metrics --no-sm >/dev/null
scancel "$first" "$third"
until_true no_jobs
until_true no_regions
show_on n1 vgpuctl report "$first"
show_on n1 ls /run/vgpu

say "Without Slurm, for two ranks on this machine"
show_on n1 vgpu-run -n 2 --gpu-mem="$(scaled 1)G" -- take "$(scaled 600)"

if [ -n "$shell" ]; then
  say "The cluster is yours until you leave: srun --gpu-mem=$(scaled 2)G take $(scaled 500); on n1 vgpuctl; exit"
  bash --rcfile <(echo "PS1='demo\\$ '") -i <&3
  exit 0
fi
say "What next?"
echo "To read:    docs/user.md for users, docs/slurm-integration.md for administrators
To try:     ./demo.sh --shell ends with a prompt on such a cluster
To install: README.md, section Install: as a package for Debian or with RPM, or with make install"
