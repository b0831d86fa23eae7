#!/bin/bash
# What it costs to build slurm-vgpu from a fresh clone, in seconds of processors (user + system), which say the same on an
# idle machine and on a busy one.
#   build_bench.sh [demo|all]...     prints figures for tests/bench/run.sh; without a word, both
#     demo    autoreconf, configure, make demo: what ./demo.sh does before it runs
#     all     autoreconf, configure, and everything that `make check` builds
# Run in a build directory, as `make bench` does: its compiler and its options of configure are used. Only what is committed
# is measured; where there is no git, what `make dist` packs.
set -u
source_dir=$(readlink -f "$(dirname "$0")/../..")
build=${VGPU_BUILD:-$PWD}
[ -x "$build/config.status" ] || { echo "build_bench.sh: $build was not configured" >&2 && exit 1; }
options=()
eval "options=($("$build/config.status" --config))" || exit 1

# A cache would be measured in place of the compiler.
export CCACHE_DISABLE=1
PATH=$(tr : '\n' <<<"$PATH" | grep -v '/ccache$' | paste -sd :)

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# fresh DIRECTORY: the sources, as somebody else gets them.
fresh() {
  if git -C "$source_dir" rev-parse HEAD >/dev/null 2>&1; then
    mkdir "$1" && git -C "$source_dir" archive HEAD | tar -x -C "$1"
  else
    make -C "$build" distdir distdir="$1"
  fi
}

# built DIRECTORY TARGET...: one after the other, as they share files.
built() {
  local target
  cd "$1" && autoreconf -fi && mkdir build && cd build && ../configure "${options[@]}" || return
  for target in "${@:2}"; do make -j"$(nproc)" "$target" TESTS= || return; done
}

# measure FIGURE GOAL TARGET...
measure() {
  local figure=$1 goal=$2 directory=$work/$1 TIMEFORMAT='%U %S'
  fresh "$directory" >"$work/log" 2>&1 &&
    { time built "$directory" "${@:3}" >"$work/log" 2>&1 </dev/null; } 2>"$work/time" ||
    { tail -n 20 "$work/log" >&2 && echo "build_bench.sh: cannot build ${*:3}" >&2 && exit 1; }
  cd "$work" && rm -rf "$directory"
  awk -v figure="$figure" -v goal="$goal" \
    '{ printf "%s\t%.4g\ts\t%s\t%s\n", figure, $1 + $2, goal, $1 + $2 <= goal ? "ok" : "short" }' "$work/time"
}

[ $# -gt 0 ] || set -- demo all
for what; do
  case $what in
    demo) measure build.demo_cpu_s 150 demo ;;
    all) measure build.all_cpu_s 500 all check ;;
    *) echo "usage: build_bench.sh [demo|all]..." >&2 && exit 2 ;;
  esac
done
