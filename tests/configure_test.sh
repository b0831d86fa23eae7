#!/bin/bash
# configure does not build less than was asked for: headers that are missing are named, all at once, with the packages that
# hold them, and only --without-... does without. A preprocessor that finds none of them stands for a machine without.
set -u

source_dir=$(readlink -f "${srcdir:-$(dirname "$0")/..}")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

failures=0
fail() {
  printf 'FAIL: %s\n' "$1"
  failures=$((failures + 1))
}
says() { grep -qF -- "$1" output || fail "$2: configure does not say: $1"; }

cat >preprocessor <<'END'
#!/bin/bash
# HIDDEN: a regular expression of headers that are not there.
grep -qE "#include <($HIDDEN)>" "${!#}" && echo "no such header" >&2 && exit 1
exec ${REAL_CXX:-g++ -std=c++20} -E "$@"
END
chmod 755 preprocessor

# configured HIDDEN OPTION...: what it checked once it knows the next time.
configured() {
  REAL_CXX=${CXX:-} HIDDEN=$1 "$source_dir/configure" --cache-file="$work/cache" CXXCPP="$work/preprocessor" "${@:2}" \
    >output 2>&1
}

all='slurm/spank.h|cuda.h|nvml.h|CLI/CLI.hpp|nlohmann/json.hpp'
configured "$all|hwloc.h" && fail "everything is missing: configure succeeds"
for name in slurm cuda nvml cli11 json; do says "; --without-$name builds all but " "everything is missing"; done
says 'apt-get install libslurm-dev nvidia-cuda-dev libnvidia-ml-dev libcli11-dev nlohmann-json3-dev' "everything is missing"
grep -qF 'libhwloc-dev' output && fail "everything is missing: hwloc is asked for, which is optional"
[ ! -e Makefile ] || fail "everything is missing: there is a Makefile"

configured 'CLI/CLI.hpp|hwloc.h' --with-hwloc --without-cuda --without-nvml && fail "two are missing: configure succeeds"
says "(CLI/CLI.hpp); --without-cli11 builds all but vgpuctl and vgpu-run" "two are missing"
says 'apt-get install libcli11-dev libhwloc-dev' "two are missing"
grep -qF -- '--without-slurm' output && fail "two are missing: Slurm is complained about"

configured "$all|hwloc.h" --without-slurm --without-cuda --without-nvml --without-cli11 --without-json ||
  fail "configure cannot do without: $(grep -m 1 'error:' output)"
for name in slurm cuda nvml cli11 json; do says "no (--without-$name)" "without everything"; done
says 'no (install libhwloc-dev)' "without everything"

[ "$failures" -eq 0 ] && echo "configure refuses what is missing and obeys --without-..."
