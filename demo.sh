#!/bin/bash
# Shows slurm-vgpu at work: a private Slurm cluster of two nodes, a few jobs, and no trace afterwards. On the machine's own
# GPU where there is an NVIDIA driver, else on simulated ones. Needs root on Debian. What is missing is installed and built
# in build/ first.
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
    --simulated) simulated=yes ;;
    --help | -h) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) break ;;
  esac
  shift
done
exec 3<&0 </dev/null  # srun would read what is typed for the prompt
home=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
build=$(readlink -m "${1:-$home/build}")
lab=$home/tests/slurm/lab.sh

[ "$(id -u)" -eq 0 ] || { echo "demo.sh: a private Slurm cluster needs root" >&2 && exit 1; }
missing() {
  local file
  for file in spank/spank_vgpu.so libvgpu/libvgpu.so utils/vgpu-probe/vgpu-probe utils/vgpuctl/vgpuctl utils/vgpu-run/vgpu-run \
    simgpu/simgpu-kernel simgpu/simgpu-client; do
    [ -e "$build/$file" ] || return 0
  done
  ! "$lab" check >/dev/null
}
if missing; then
  [ "$build" = "$home/build" ] || { echo "demo.sh: $build holds no complete build; run ./check.sh --build" >&2 && exit 1; }
  "$home/check.sh" --build || exit 1
  "$lab" check || exit 1
fi

work=$(mktemp -d /tmp/vdemo-XXXXXX) || exit 1
chmod 755 "$work"
trap '"$lab" stop "$work/cluster"; cd / && rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/bin" && cd "$work" || exit 1
cp "$build/libvgpu/libvgpu.so" "$build/simgpu/simgpu-client" . || exit 1

# ---- the GPU --------------------------------------------------------------------------------------------------------

# loaded NAME: the file that the loader finds for a library.
loaded() { LD_PRELOAD=$1 LD_TRACE_LOADED_OBJECTS=1 /bin/true 2>/dev/null | sed -n "s,^[[:space:]]*$1 => \(/[^ ]*\) .*,\1,p" | grep .; }

# The machine's own driver: both libraries can be loaded, and NVML tells of a GPU that is large enough. Memory is counted in
# eighths of it, whole GiB; contexts of real drivers are no small part of less.
own_driver() {
  local device bytes
  cuda=$(loaded libcuda.so.1) && nvml=$(loaded libnvidia-ml.so.1) || return
  device=$("$build/utils/vgpu-probe/vgpu-probe" 2>/dev/null | grep -m 1 '^device .* minor=[0-9]') || return
  minor=$(sed 's/.* minor=\([0-9]*\) .*/\1/' <<<"$device")
  bytes=$(sed 's/.* memory=\([0-9]*\) .*/\1/' <<<"$device")
  unit=$((bytes >> 33))
  [ "$unit" -ge 1 ]
}

if [ -z "$simulated" ] && own_driver; then
  gpu="this machine's GPU of $((8 * unit)) GiB for both"
  find_driver="export LD_LIBRARY_PATH=${cuda%/*}"
  gpu_options=(--own-gpus --minors "$minor")
  keys="nvml=$nvml"
else
  unit=1
  gpu="a simulated GPU of 8 GiB each"
  find_driver=: # the nodes' loader knows where it is
  gpu_options=(--simgpu "$build/simgpu" --simgpu-config 'memory=8GiB;context=64MiB;visibility_ms=0;idle_ms=100;device')
  keys=
fi
scaled() { echo $(($1 * unit)); }

# ---- programs of the demo -------------------------------------------------------------------------------------------

# Any CUDA program would do.
cat >bin/take <<END
#!/bin/bash
# take MIB [SECONDS]: takes so much GPU memory and keeps it for a moment.
# insist MIB: asks until it gets it, and keeps it.
$find_driver
coproc gpu { exec $work/simgpu-client; }
ask() { echo "\$1" >&"\${gpu[1]}" && read -r answer <&"\${gpu[0]}"; }
who="rank \${SLURM_PROCID:-\${VGPU_RANK:-0}} on \$(hostname)"
ask 'ctx 0'
ask "alloc \$((\$1 << 20))"
case \$answer in
  0*) echo "\$who has its \$1 MiB" ;;
  *) echo "\$who got no \$1 MiB: CUDA error \${answer%% *}" ;;
esac
case \${0##*/} in
  take)
    sleep "\${2:-2}"
    [[ \$answer == 0* ]]
    exit
    ;;
esac
until [[ \$answer == 0* ]]; do sleep 0.2 && ask "alloc \$((\$1 << 20))"; done
echo "\$who has its \$1 MiB now"
sleep infinity
END
ln -s take bin/insist
cat >bin/compute <<END
#!/bin/bash
# compute SECONDS: launches so much work of the GPU, in kernels of 1 ms, and waits for it.
$find_driver
coproc gpu { exec $work/simgpu-client; }
ask() { echo "\$1" >&"\${gpu[1]}" && read -r answer <&"\${gpu[0]}"; }
ask 'ctx 0'
start=\${EPOCHREALTIME/./}
ask "launch 1ms \$((\$1 * 1000))"
ask sync
echo "\$1 s of GPU time in \$(((\${EPOCHREALTIME/./} - start + 50000) / 100000))" | sed 's/.\$/.& s/'
END

# on NODE COMMAND...: what an administrator does there.
cat >bin/on <<END
#!/bin/bash
node=\$1
shift
$find_driver
exec "$lab" node "$work/cluster" "\$node" -- env "XDG_RUNTIME_DIR=$work" "PATH=$work/bin:$build/utils/vgpuctl:$build/utils/vgpu-run:\$PATH" "\$@"
END
chmod 755 bin/* libvgpu.so simgpu-client
PATH=$work/bin:$PATH

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
quoted() { printf '%s' "$1" && printf ' %s' "${@@Q}" | sed "s/^ [^ ]*//; s/'\([-A-Za-z0-9_=%,.:/+]*\)'/\1/g"; }
show() {
  printf '$ %s\n' "$(quoted "$@")"
  "$@"
}
show_on() {
  printf '%s# %s\n' "$1" "$(quoted "${@:2}")"
  on "$@"
}
until_true() {
  local deadline=$((SECONDS + 30))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { echo "demo.sh: waited in vain: $*" >&2 && exit 1; }
    sleep 0.1
  done
}
runs() { [ "$(squeue -h -j "$1" -o %T)" = RUNNING ]; }
waits() { [ "$(squeue -h -j "$1" -o %r)" = Resources ]; }
says() { grep -qs "$2" "slurm-$1.out"; }
no_jobs() { [ -z "$(squeue -h)" ]; }
no_regions() { [ -z "$(on n1 find /run/vgpu -mindepth 1 -name '[0-9]*')" ]; }

# ---- the cluster ----------------------------------------------------------------------------------------------------

say "A Slurm cluster of two nodes, with $gpu, that Slurm counts as 8 shards"
sed "/^local gpus = {\$/,/^}\$/c\\local gpus = { sim = { shards = 8, memory = \"$(scaled 8)G\" } }" "$home/etc/job_submit.lua" >job_submit.lua
"$lab" start cluster --cpus 8 --gpus 1 --owner $$ "${gpu_options[@]}" \
  --job-submit job_submit.lua "$home/etc/vgpu_submit.lua" \
  --plugstack "required $build/spank/spank_vgpu.so library=$work/libvgpu.so probe=$build/utils/vgpu-probe/vgpu-probe $keys" || exit 1
eval "$("$lab" env cluster)"
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
submit() { # SBATCH ARGUMENT...: sets $job
  printf '$ %s\n' "$(quoted sbatch "$@")"
  job=$(sbatch --parsable "$@") && echo "Submitted batch job $job"
}
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
echo 'n1# ls /run/vgpu'
on n1 ls /run/vgpu

say "Without Slurm, for two ranks on this machine"
show_on n1 vgpu-run -n 2 --gpu-mem="$(scaled 1)G" -- take "$(scaled 600)"

[ -n "$shell" ] || exit 0
say "The cluster is yours until you leave: srun --gpu-mem=2G take 500; on n1 vgpuctl; exit"
printf '%s\n' "PS1='demo\\$ '" >rc
bash --rcfile rc -i <&3
exit 0
