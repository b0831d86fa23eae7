#!/bin/sh
# Programs that measure themselves, on kernels that take time: their rates are what the device allows, and fall when another
# process shares it.
. "$(dirname "$0")/lib.sh"
need ffmpeg ffmpeg
node_lines='kernel_time=20us+1us/wave; kernel_time Subsample*=4ms; kernel_time m0*=20us+1ms/wave;'
node
export HOME="$scratch" XDG_CACHE_HOME="$scratch" XDG_DATA_HOME="$scratch"

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# scale_cuda launches a kernel for each of a frame's two planes, and waits.
scale() {
  timeout 120 ffmpeg -hide_banner -nostdin -y -loglevel error -init_hw_device cuda=cu:0 -filter_hw_device cu \
    -f lavfi -i testsrc=s=320x180:d=4 -vf format=nv12,hwupload_cuda,scale_cuda=160:90,hwdownload,format=nv12 -f null -
}
started=$(milliseconds)
expect "scale_cuda alone" scale
alone=$(($(milliseconds) - started))
started=$(milliseconds)
scale &
other=$!
expect "scale_cuda beside another" scale
wait $other
shared=$(($(milliseconds) - started))
echo "100 frames: $alone ms alone, $shared ms beside another"
expect "100 frames take 200 kernels' time" test $alone -ge 800
expect "two at once take that of 400" test $shared -ge 1600
expect "which is longer" test $shared -ge $((alone + 200))

command -v hashcat >/dev/null 2>&1 || { echo "hashcat was left out: it is not there"; exit 0; }
nvrtc=
for place in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu; do
  [ -z "$nvrtc" ] && [ -e "$place/libnvrtc.so" ] && nvrtc=$place
done
[ -n "$nvrtc" ] || { echo "hashcat was left out: NVRTC is not there"; exit 0; }

# In MH/s.
speed() {
  LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nvrtc timeout 200 hashcat -b -m 0 --self-test-disable --backend-ignore-opencl \
    --backend-devices 1 --runtime 2 >"$scratch/out" 2>&1
  awk '/Speed.#1/ { factor["H/s"] = 1e-6; factor["kH/s"] = 1e-3; factor["MH/s"] = 1; factor["GH/s"] = 1e3
                    printf "%d\n", $2 * factor[$3] }' "$scratch/out"
}
alone=$(speed)
mkfifo "$scratch/spin"
"$SIMGPU_BUILD/simgpu-client" <"$scratch/spin" >"$scratch/spinning" &
holder=$!
exec 3>"$scratch/spin"
printf 'ctx 0\nspin 20ms\n' >&3
until_true test "$(grep -c '^0' "$scratch/spinning")" -eq 2
shared=$(speed)
echo "hashcat: $alone MH/s alone, $shared MH/s beside another"
expect "hashcat printed speeds" test "${alone:-0}" -gt 0 -a "${shared:-0}" -gt 0
# Not to a half: it also takes the device for slower than it is, and gives it less to do at a time.
expect "which fall" test $((shared * 10)) -lt $((alone * 7))
expect "not to nothing" test $((shared * 20)) -gt "$alone"
