#!/bin/bash
# demo.sh on a machine with a driver of its own. A stand-in: the simulated one, where the loader finds it, with one GPU for
# the whole machine, of which 16 GiB can be had. It was never run on a real one.
set -u
unset TMPDIR SIMGPU_NODE SIMGPU_CONFIG
. "$(dirname "$0")/demo_lib.sh"

# In a mount namespace of its own, where programs without SIMGPU_NODE have their GPUs: nobody else's are touched. The directory
# is the machine's, though, and removing it would take the mount of another clone's test away: one at a time.
node=/tmp/simgpu-0
[ ! -e /run/simgpu ] || { echo "skipped: this machine has a simulated GPU of its own" && exit 77; }
exec 8</var/tmp && flock 8 || exit 1
mkdir -p "$node"
export demo build node
output=$(unshare --mount bash -c '
  mount -t tmpfs -o mode=0700 tmpfs "$node" || exit
  printf "%s\n" memory=16640MiB reserved=256MiB context=64MiB visibility_ms=0 idle_ms=60000 device >"$node/node.conf"
  export LD_LIBRARY_PATH=$build/simgpu/13.0
  "$demo" "$build"
  status=$?
  "$build/simgpu/simgpu-ctl" stop >/dev/null
  exit $status' 2>&1 8<&-)
status=$?
rmdir "$node" 2>/dev/null
echo "$output"

[ $status -eq 0 ] || wrong "status $status"
has "two nodes, with this machine's GPU of 16 GiB for both"
[ "$(grep -c 'has its 1000 MiB$' <<<"$output")" -ge 3 ] || wrong "not three of four ranks got their memory"
has '^vgpu: job 1, GPU GPU-[-0-9a-f]*: out of memory: .* \+ 1000MiB asked > 4096MiB limit'
has '^rank . on n2 has its 3000 MiB$'
has '--gpu-mem=18G: no GPU that the job can get has more than 16G'
has '^job 3, GPU 0: 10GiB of memory'
has '^rank 0 on n1 has its 9000 MiB now$'
has '^1 s of GPU time in [12]\.. s$'
has '^1 s of GPU time in [3-6]\.. s$'
has '^vgpu: vgpu-run [0-9]+ on n1, GPU .*: peak 1328MiB of 2GiB'
[ $failures -eq 0 ]
