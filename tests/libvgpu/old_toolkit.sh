#!/bin/sh
# The library compiles without a warning with the headers of CUDA 11.8, and is then the same to the outside.
# CUDA_OLD_INCLUDE says where they are; check.sh fetches them to cuda-11.8/ in the build directory.
set -eu
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
include=${CUDA_OLD_INCLUDE:-$PWD/cuda-11.8/include}
if ! grep -q '^#define CUDA_VERSION 11080' "$include/cuda.h" 2>/dev/null; then
  echo "skipped: the headers of CUDA 11.8 are not in $include"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Before any other toolkit's, and of all its headers only these.
mkdir "$scratch/include"
cp "$include/cuda.h" "$scratch/include"
flags="-Wall -Wextra -Werror -O0 -fPIC -fno-exceptions -fno-rtti -fvisibility=hidden -fno-threadsafe-statics"
flags="$flags -D__CUDA_API_VERSION_INTERNAL -DNVML_NO_UNVERSIONED_FUNC_DEFS -I$scratch/include -I$source_dir/libvgpu"
flags="$flags -DPACKAGE_VERSION=\"0\""
for folder in driver runtime sm hooks; do
  mkdir "$scratch/$folder"
  # shellcheck disable=SC2086  # the compiler and its flags are lists
  (cd "$scratch/$folder" && printf '%s\n' "$source_dir/libvgpu/$folder"/*.cc |
    xargs -P "$(nproc)" -n 4 ${CXX:-g++ -std=c++20} $flags ${NVML_CPPFLAGS:-} -c)
done
# shellcheck disable=SC2086
${CXX:-g++ -std=c++20} -shared -nodefaultlibs -Wl,-z,defs -Wl,--version-script=libvgpu/driver/exports.map \
  -o "$scratch/libvgpu.so" "$scratch"/*/*.o libvgpu/region/libregion.a libvgpu/base/libbase.a -lc -lgcc
"$source_dir/tests/driver/table_test.py" "$include" "$scratch/libvgpu.so"
exported() { nm -D --defined-only "$1" | awk '{ print $2, $3 }'; }
exported "$scratch/libvgpu.so" >"$scratch/old"
exported libvgpu/libvgpu.so >"$scratch/new"
diff "$scratch/old" "$scratch/new" && echo "ok: the same exports as with this toolkit"
