#!/bin/sh
# Prints the exports that put a shell on the simulated GPU node:  eval "$(simgpu/env.sh)"
# SIMGPU_BUILD   where the libraries were built (default: beside this script, or build/simgpu of the tree)
# SIMGPU_LEVEL   which driver to pass for: 13.0 (default) or 535
# SIMGPU_NODE    the node's directory (default: /run/simgpu if it exists, else one per user in /tmp)
here=$(cd "$(dirname "$0")" && pwd)
level=${SIMGPU_LEVEL:-13.0}
for candidate in "${SIMGPU_BUILD:-}" "$here" "$here/../build/simgpu" "$PWD/simgpu" "$PWD/build/simgpu"; do
  if [ -n "$candidate" ] && [ -e "$candidate/$level/libcuda.so.1" ]; then
    build=$(cd "$candidate" && pwd)
    break
  fi
done
if [ -z "${build:-}" ]; then
  echo "simgpu: no $level/libcuda.so.1 found; build it, or set SIMGPU_BUILD" >&2
  echo false
  exit 1
fi
default=/run/simgpu
[ -e "$default" ] || default=/tmp/simgpu-$(id -u)
node=${SIMGPU_NODE:-$default}
printf 'export SIMGPU_BUILD=%s\n' "$build"
printf 'export SIMGPU_LEVEL=%s\n' "$level"
printf 'export SIMGPU_NODE=%s\n' "$node"
printf 'export LD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n' "$build/$level"
