#!/bin/bash
# Builds in build/ and runs the tests. See --help; the parts are in tests/check/.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
source_dir=$PWD
build_dir=$source_dir/build
log_dir=$build_dir/log
for part in log progress packages build tests stages; do . "tests/check/$part.sh" || exit 1; done

# Name, level, title. A level has the stages of the level before it, and of the packages in tests/check/packages.txt as much.
stages=(
  "packages quick What the build and the tests need is installed"
  "release  quick Release build, every test"
  "format   quick clang-format finds nothing to change"
  "model    quick The model of the accounting protocol, checked by spin"
  "asan     all   The tests under AddressSanitizer and UndefinedBehaviorSanitizer"
  "tsan     all   The thread tests under ThreadSanitizer"
  "aarch64  all   The tests in an emulator for ARM, and again with pages of 64 KiB"
  "clang    all   Everything compiles with clang++, without a warning"
  "mutants  all   Every mutation of the protocol's code breaks a test"
  "dist     all   make distcheck; the archive is complete"
)
on_request=(
  "build    quick Everything is built, in build/"
  "demo     demo  What ./demo.sh runs is built, in build/"
  "gpu      quick A report of what this machine's own GPU and driver do"
)
declare -A levels_of=([demo]=demo [quick]="demo quick" [all]="demo quick all")

usage() {
  cat <<'END'
usage: ./check.sh [--all | --build | --demo | --soak | --mutants | --gpu | --only STAGE[,STAGE...]]

Without an option: builds in build/ and runs every test once, before a commit, or to see for yourself. As root on Debian it
first installs the packages that are missing; as anybody else it skips, and says so, what it cannot do. The last line
counts: "N passed, M failed".

  --all           all stages, as CI runs them
  --soak          all stages, and the long runs: hours
  --build         only install what is missing, and build
  --demo          the same, of what ./demo.sh needs
  --mutants       only see that every mutation of the protocol's code breaks a test
  --gpu           only measure on the GPU of this machine, and write a report for us: at most an hour
  --only STAGES   only these stages
  --help          this text

stages, and with which option they run:
END
  local name of title
  while read -r name of title; do
    case $of in quick) of= ;; *) of=--all ;; esac
    printf '  %-9s %-6s %s\n' "$name" "$of" "$title"
  done < <(printf '%s\n' "${stages[@]}")
}

table=() failed_tests=()
total_passed=0 total_failed=0 total_skipped=0

# run_stage NAME TITLE
run_stage() {
  local stage=$1 start=$SECONDS status verdict passed=0 failed=0 skipped=0 note= log=$log_dir/$1.log
  : >"$log" || exit 1
  printf '== %s: %s\n' "$stage" "$2"
  "stage_$stage"
  status=$?
  case $status in
    0) verdict=ok ;;
    77) verdict=skipped ;;
    *) verdict=FAILED && [ "$failed" -gt 0 ] || failed=1 ;;
  esac
  if [ $((passed + failed + skipped)) -eq 0 ]; then
    if [ "$status" -eq 77 ]; then skipped=1; else passed=1; fi
  fi
  total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed)) total_skipped=$((total_skipped + skipped))
  table+=("$(printf '%-10s %-8s %7d %7d %8d %7s  %s' "$stage" "$verdict" "$passed" "$failed" "$skipped" \
    "$(minutes $((SECONDS - start)))" "$note")")
  printf '   %s: %s in %s%s\n' "$stage" "$verdict" "$(minutes $((SECONDS - start)))" "${note:+: $note}"
  [ "$verdict" != FAILED ]
}

report() {
  printf '\n%-10s %-8s %7s %7s %8s %7s\n' stage result passed failed skipped time
  printf '%s\n' "${table[@]}"
  [ ${#failed_tests[@]} -eq 0 ] || printf '%s\n' "${failed_tests[@]}"
  printf '%d passed, %d failed' "$total_passed" "$total_failed"
  [ "$total_skipped" -eq 0 ] || printf ', %d skipped' "$total_skipped"
  printf '\n'
}

bad_usage() {
  printf 'check.sh: %s; see ./check.sh --help\n' "$1" >&2
  exit 2
}

# Regions belong on a tmpfs. Whatever a test that was killed leaves there goes with this directory.
make_directories() {
  export TMPDIR=$build_dir/tmp # nothing is left anywhere else
  mkdir -p "$log_dir" "$TMPDIR" || exit 1
  VGPU_TEST_DIR=$(mktemp -d -p /dev/shm vgpu-check-XXXXXX 2>/dev/null || mktemp -d) || exit 1
  export VGPU_TEST_DIR
  chmod 755 "$VGPU_TEST_DIR"
  trap 'rm -rf "$VGPU_TEST_DIR"' EXIT
}

main() {
  local chosen= entry name of title
  level=quick test_timeout=300 soak=
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --all) level=all ;;
      --soak) level=all soak=yes test_timeout=3600 VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-600} && export VGPU_STRESS_SECONDS ;;
      --build) chosen=packages,build ;;
      --demo) chosen=packages,demo level=demo ;;
      --mutants) chosen=packages,mutants ;;
      --gpu) chosen=packages,gpu ;;
      --only)
        [ $# -gt 1 ] || bad_usage "--only needs the name of a stage"
        chosen=$2 level=all && shift
        ;;
      *) bad_usage "unknown option '$1'" ;;
    esac
    shift
  done
  for name in ${chosen//,/ }; do
    printf '%s\n' "${stages[@]}" "${on_request[@]}" | grep -q "^$name " || bad_usage "there is no stage '$name'"
  done
  make_directories
  [ -z "$chosen" ] || stages+=("${on_request[@]}")
  for entry in "${stages[@]}"; do
    read -r name of title <<<"$entry"
    if [ -n "$chosen" ]; then [[ ,$chosen, == *,$name,* ]]; else [[ " ${levels_of[$level]} " == *" $of "* ]]; fi || continue
    run_stage "$name" "$title" || [ "$level" != demo ] || break
  done
  [ "$level" = demo ] && [ "$total_failed" -eq 0 ] || report
  [ "$total_failed" -eq 0 ]
}

main "$@"
