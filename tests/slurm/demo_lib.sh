# Of the tests of demo.sh. Sourced.
#   $demo, $build                  the script, and what it shows
#   has PATTERN, wrong SENTENCE    about $output; $failures counts
#   gone DIRECTORY                 nothing is left of a demo that had it
demo=$(readlink -f "$(dirname "$0")/../../demo.sh")
build=${VGPU_BUILD:-$PWD}
"${demo%/*}/tests/slurm/lab.sh" check || exit
for tool in vgpuctl vgpu-run; do
  [ -e "$build/utils/$tool/$tool" ] || { echo "skipped: $tool was not built; CLI11 or nlohmann's JSON is missing" && exit 77; }
done

failures=0
wrong() { echo "wrong: $*" && failures=$((failures + 1)); }
has() { grep -qE -- "$1" <<<"$output" || wrong "'$1' is missing"; }
gone() {
  local left
  [ ! -e "$1" ] || wrong "$1 is left"
  left=$(grep -laFs -f <(echo "$1") /proc/[0-9]*/{cmdline,environ,mounts}) # grep's own have no such word
  [ -z "$left" ] || wrong "processes or mounts of $1 are left: $left"
}
