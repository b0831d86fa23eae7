#!/bin/sh
# ffmpeg: frames go to the device and come back unchanged; scale_cuda loads its kernels and launches them.
. "$(dirname "$0")/lib.sh"
need ffmpeg ffmpeg
node

run() { # OUTPUT FILTERS...
  timeout 120 ffmpeg -hide_banner -nostdin -loglevel error -init_hw_device cuda=cu:0 -filter_hw_device cu \
    -f lavfi -i testsrc=s=640x360:d=2 -vf "$2" -f framemd5 "$1"
}
frames() { grep -v '^#' "$1"; }

expect "ffmpeg without the device" run "$scratch/plain" format=nv12
expect "hwupload_cuda and hwdownload" run "$scratch/round" format=nv12,hwupload_cuda,hwdownload,format=nv12
[ "$(frames "$scratch/plain" | wc -l)" -eq 50 ] || { echo "FAILED: not 50 frames"; exit 1; }
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
