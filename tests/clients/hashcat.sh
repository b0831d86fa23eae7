#!/bin/sh
# hashcat: device information through CUDA and NVML; with NVRTC also a benchmark, which compiles, links, loads and launches.
. "$(dirname "$0")/lib.sh"
need hashcat hashcat
node
export HOME="$scratch" XDG_CACHE_HOME="$scratch" XDG_DATA_HOME="$scratch"

information() {
  timeout 120 hashcat -I --backend-ignore-opencl >"$scratch/out" 2>&1
  cat "$scratch/out"
  expect "both devices are listed" test "$(grep -c 'Name.*: Client GPU [AB]' "$scratch/out")" -eq 2
  expect "and their bus address" grep -q 'PCI.Addr.BDFe..: 0000:11:00.0' "$scratch/out"
}
information_natively() {
  information
  expect "with their memory" grep -q 'Memory.Total...: 3840 MB' "$scratch/out"
}
both_ways information_natively

job 1G
information
expect "the limit is the size" test "$(grep -c 'Memory.Total...: 1024 MB' "$scratch/out")" -eq 2
expect "less a context is free" test "$(grep -c 'Memory.Free....: 924 MB' "$scratch/out")" -eq 2
end_job

nvrtc=
for place in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu; do
  [ -z "$nvrtc" ] && [ -e "$place/libnvrtc.so" ] && nvrtc=$place
done
if [ -z "$nvrtc" ]; then
  echo "the benchmark was left out: NVRTC is not there"
  exit 0
fi
benchmark() {
  LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nvrtc timeout 200 hashcat -b -m 0 --self-test-disable --backend-ignore-opencl \
    --backend-devices 1 --runtime 1 >"$scratch/out" 2>&1
  status=$?
  grep -v -e '^Speed' -e '^Started:' -e '^Stopped:' "$scratch/out"
}
speed() {
  benchmark
  expect "the benchmark ended well" test $status -eq 0
  expect "it printed a speed" grep -q 'Speed.#1.*H/s' "$scratch/out"
}
compile() {
  rm -rf "$scratch/hashcat"
  speed
}
both_ways compile

# From here on it finds its kernels compiled.
job 1G
speed
expect "it saw the limit" grep -q 'Client GPU A, 924/1024 MB' "$scratch/out"
end_job

job 300M
benchmark
expect "it sees that the limit is too small" test $status -ne 0
expect "and says so" grep -q 'Not enough allocatable device memory for this attack' "$scratch/out"
expect "libvgpu had nothing to refuse" sh -c "! grep 'vgpu: ' '$scratch/out'"
end_job

job 104M
benchmark
expect "a context fits, its module does not" test $status -ne 0
expect "hashcat says why" grep -q 'cuModuleLoadDataEx(): out of memory' "$scratch/out"
expect "libvgpu says why, once" refused_once "$scratch/out"
end_job
