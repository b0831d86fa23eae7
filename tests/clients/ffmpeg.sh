#!/bin/sh
# ffmpeg: frames go to the device and come back unchanged; scale_cuda loads its kernels and launches them.
. "$(dirname "$0")/lib.sh"
need ffmpeg ffmpeg
node

run() { # OUTPUT FILTERS [SIZE [SECONDS]]
  timeout 120 ffmpeg -hide_banner -nostdin -y -loglevel error -init_hw_device cuda=cu:0 -filter_hw_device cu \
    -f lavfi -i "testsrc=s=${3:-640x360}:d=${4:-2}" -vf "$2" -f framemd5 "$1"
}
frames() { grep -v '^#' "$1"; }

checks() {
  expect "ffmpeg without the device" run "$scratch/plain" format=nv12
  expect "hwupload_cuda and hwdownload" run "$scratch/round" format=nv12,hwupload_cuda,hwdownload,format=nv12
  expect "50 frames" test "$(frames "$scratch/plain" | wc -l)" -eq 50
  frames "$scratch/plain" >"$scratch/a"
  frames "$scratch/round" >"$scratch/b"
  expect "the frames are the same" cmp "$scratch/a" "$scratch/b"

  run "$scratch/scaled" format=nv12,hwupload_cuda,scale_cuda=320:180,hwdownload,format=nv12 2>"$scratch/err"
  status=$?
  cat "$scratch/err"
  expect "scale_cuda" test $status -eq 0
  expect "scale_cuda made 50 frames of 320x180" test "$(frames "$scratch/scaled" | grep -c ' 86400,')" -eq 50
  expect "nothing it asked for is missing" sh -c "! grep 'not simulated' '$scratch/err'"
  expect "all memory is back" nothing_held
}
both_ways checks

# A frame of 3840x2160 has 12 MB, a context 100 MiB; hwupload_cuda makes a second one of its own.
upload() { run "$scratch/large" format=nv12,hwupload_cuda,hwdownload,format=nv12 3840x2160 0.04 2>"$scratch/err"; }
refused() { # SIZE
  job "$1"
  upload
  status=$?
  cat "$scratch/err"
  expect "ffmpeg fails" test $status -ne 0
  expect "and says why" grep -q 'CUDA_ERROR_OUT_OF_MEMORY: out of memory' "$scratch/err"
  expect "libvgpu says why, once" refused_once "$scratch/err"
  end_job
}
job 240M
upload
status=$?
cat "$scratch/err"
expect "a large frame within the limit" test $status -eq 0
expect "in silence" test ! -s "$scratch/err"
expect "and it was charged" sh -c "[ '$(books | awk 'NR == 1 { print $3 }')' -ge $((211 << 20)) ]"
end_job
refused 206M  # a frame
refused 150M  # the second context
refused 64M   # the first

# A driver that fails in the middle: ffmpeg says its own error, and what it held comes back.
broken() { # FAULTS ERROR
  SIMGPU_FAULTS=$1 run "$scratch/broken" format=nv12,hwupload_cuda,hwdownload,format=nv12 2>"$scratch/err"
  status=$?
  cat "$scratch/err"
  expect "ffmpeg ends by itself" test $status -lt 124
  expect "and names the driver's error" grep -q "$2" "$scratch/err"
  expect "libvgpu says nothing" sh -c "! grep 'vgpu: ' '$scratch/err'"
  expect "all memory is back" nothing_held
}
job
broken 'cuMemAlloc_v2 fail 2' 'CUDA_ERROR_OUT_OF_MEMORY'
broken 'cuMemcpy2DAsync_v2@5 fail 719' 'CUDA_ERROR_LAUNCH_FAILED'
broken 'cuCtxCreate_v2 fail 999' 'CUDA_ERROR_UNKNOWN'
end_job
