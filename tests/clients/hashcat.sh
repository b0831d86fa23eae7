#!/bin/sh
# hashcat: device information through CUDA and NVML; with NVRTC also a benchmark, which compiles, links, loads and launches.
. "$(dirname "$0")/lib.sh"
need hashcat hashcat
node
export HOME="$scratch" XDG_CACHE_HOME="$scratch" XDG_DATA_HOME="$scratch"
timeout 120 hashcat -I --backend-ignore-opencl >"$scratch/out" 2>&1
cat "$scratch/out"
expect "both devices are listed" test "$(grep -c 'Name.*: Client GPU [AB]' "$scratch/out")" -eq 2
expect "with their memory" grep -q 'Memory.Total...: 3840 MB' "$scratch/out"
expect "and their bus address" grep -q 'PCI.Addr.BDFe..: 0000:11:00.0' "$scratch/out"

nvrtc=
for place in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu; do
  [ -z "$nvrtc" ] && [ -e "$place/libnvrtc.so" ] && nvrtc=$place
done
if [ -z "$nvrtc" ]; then
  echo "the benchmark was left out: NVRTC is not there"
  exit 0
fi
LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nvrtc timeout 200 hashcat -b -m 0 --self-test-disable --backend-ignore-opencl \
  --backend-devices 1 --runtime 5 >"$scratch/out" 2>&1
status=$?
cat "$scratch/out"
expect "the benchmark ended well" test $status -eq 0
expect "it printed a speed" grep -q 'Speed.#1.*H/s' "$scratch/out"
