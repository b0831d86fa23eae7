#!/bin/sh
# Every entry point of the drivers the simulator passes for is there, under exactly the names their lists give, and the list
# of the newer one is that of the toolkit's own stub library, when there is one.
lists=$(cd "$(dirname "$0")/../../simgpu/lists" && pwd)
build=${SIMGPU_BUILD:-simgpu}
status=0

names() { grep -v '^#' "$1" | sort -u; }
exported() { nm -D --defined-only "$1" | awk '{ print $3 }' | sed 's/@.*//' | sort -u; }

check() { # WHAT WANTED HAVE
  missing=$(comm -23 "$2" "$3")
  if [ -n "$missing" ]; then
    echo "$1: missing: $missing"
    status=1
  else
    echo "$1: all $(wc -l <"$2") names present"
  fi
}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
for level in 13.0 535; do
  names "$lists/cuda-$level.txt" >"$scratch/wanted"
  exported "$build/$level/libcuda.so.1" >"$scratch/have"
  check "libcuda, level $level" "$scratch/wanted" "$scratch/have"
  names "$lists/nvml-535.txt" >"$scratch/wanted"
  exported "$build/$level/libnvidia-ml.so.1" >"$scratch/have"
  check "libnvidia-ml, level $level" "$scratch/wanted" "$scratch/have"
  for name in libcuda.so libcuda.so.1 libnvidia-ml.so libnvidia-ml.so.1; do
    [ -e "$build/$level/$name" ] || { echo "no $level/$name"; status=1; }
  done
done
exported "$build/535/libcuda.so.1" >"$scratch/have"
names "$lists/cuda-535.txt" >"$scratch/wanted"
cmp -s "$scratch/wanted" "$scratch/have" || { echo "level 535 exports more than its list"; status=1; }

nvcc=$(command -v nvcc) && nvcc=$(readlink -f "$nvcc")
for stub in "${nvcc%/bin/nvcc}/lib64/stubs/libcuda.so" /usr/local/cuda/lib64/stubs/libcuda.so; do
  [ -n "$nvcc" ] && [ -e "$stub" ] && "$nvcc" --version | grep -q 'release 13.0' || continue
  exported "$stub" >"$scratch/wanted"
  exported "$build/13.0/libcuda.so.1" >"$scratch/have"
  check "the toolkit's stub library" "$scratch/wanted" "$scratch/have"
  break
done
exit $status
