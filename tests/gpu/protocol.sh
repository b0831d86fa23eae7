#!/bin/bash
# Measures what a driver does and how our figures compare, in less than an hour, and writes one plain text file that can be
# sent to us. `./check.sh --gpu` runs it; docs/gpu-report.md says what is in the file.
#
#   protocol.sh --build DIRECTORY --out DIRECTORY [--simulated] [--sections DIRECTORY]
#
# --simulated: a rehearsal on the node that the environment names. NVIDIA's runtime refuses such a driver, and nothing here tries
# to change its mind: what needs it is "not run". Measurements are short.
#
# A section is a line of sections/sections.txt and a function section_NAME in sections/NAME.sh. It writes its part of the
# report; its lines "-> ..." are in the summary. It returns 0 (ok), 77 (not run) or anything else (failed).
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hour=3600

usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }
die() { printf 'protocol.sh: %s\n' "$1" >&2 && exit 2; }
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

build='' out='' simulated='' only='' sections=$here/sections
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?} && shift ;;
    --out) out=${2:?} && shift ;;
    --simulated) simulated=yes ;;
    --sections) sections=${2:?} && shift ;;
    --section) only=${2:?} && shift ;; # one of them, in a process of its own: used below
    --help) usage && exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
  shift
done
[ -n "$build" ] && [ -n "$out" ] || die "--build and --out are needed; see --help"
build=$(cd "$build" && pwd) || exit 1
tables=$build/tests/gpu/gpu_tables
[ -x "$tables" ] || die "gpu_tables is not built; it needs the headers of CUDA 13 and NVML"
. "$here/lib.sh" || exit 1

if [ -n "$only" ]; then
  . "$sections/$only.sh" || exit 1
  "section_$only"
  exit
fi

# ---- running ----------------------------------------------------------------------------------------------------------

listed_sections() { grep '^[^#]' "$sections/sections.txt"; }
allowed=$(listed_sections | awk '{ sum += $2 } END { print sum }')
[ "$allowed" -lt "$hour" ] || die "the sections may take $allowed s, which is more than an hour"

work=$(mktemp -d) || exit 1
export work
running='' interrupted=''
finish() {
  [ -z "$running" ] || kill "$running" 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
trap 'interrupted=yes; [ -z "$running" ] || kill "$running"' INT TERM

# run_section NAME SECONDS: sets `result`, and `words` for the summary. timeout ends all that the section started.
run_section() {
  local text=$work/$1.text errors=$work/$1.errors status
  [ -z "$interrupted" ] || { result="not run" words=interrupted && return; }
  timeout --kill-after=10 "$2" bash "$here/protocol.sh" --section "$1" --sections "$sections" --build "$build" --out "$out" \
    ${simulated:+--simulated} >"$text" 2>"$errors" </dev/null &
  running=$!
  wait "$running"
  status=$?
  while kill -0 "$running" 2>/dev/null; do wait "$running"; done # a signal ended the wait
  running=
  words=$(sed -n 's/^-> //p' "$text" | awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $0 }')
  [ -n "$words" ] || words=$(cat "$errors" "$text" | grep -v '^ *$' | tail -n 1)
  case $status in
    0) result=ok ;;
    77) result="not run" ;;
    124 | 137) result=failed words="did not end within $2 s${words:+; before that: $words}" ;;
    *) result=failed ;;
  esac
  [ -z "$interrupted" ] || { result="not run" words=interrupted; }
}

# What a section wrote, and what its programs said besides.
show_section() { # NAME TITLE
  printf '\n\n== %s: %s\n\n' "$1" "$2"
  [ -e "$work/$1.text" ] || return 0
  cat "$work/$1.text"
  [ ! -s "$work/$1.errors" ] || { printf '\nOn standard error:\n' && tail -n 40 "$work/$1.errors" | cut -c 1-300 | sed 's/^/  | /'; }
}

ok=0 failed=0 left=0
while read -r name seconds title <&4; do
  printf 'section %s, at most %s: %s\n' "$name" "$(minutes "$seconds")" "$title"
  start=$SECONDS
  run_section "$name" "$seconds"
  took=$(minutes $((SECONDS - start)))
  case $result in ok) ok=$((ok + 1)) ;; failed) failed=$((failed + 1)) ;; *) left=$((left + 1)) ;; esac
  printf '   %s: %s in %s: %s\n' "$name" "$result" "$took" "$words"
  printf '%-13s %-8s %5s  %s\n' "$name" "$result" "$took" "$words" >>"$work/summary"
  show_section "$name" "$title" >>"$work/sections"
done 4< <(listed_sections)

# ---- the report -------------------------------------------------------------------------------------------------------

report=$out/vgpu-gpu-report-$(date +%Y-%m-%d-%H%M).txt
{
  printf 'slurm-vgpu %s on a %sGPU, %s\n\n' "$(version)" "${simulated:+simulated }" "$(date +%Y-%m-%d)"
  printf '%-13s %-8s %5s  %s\n' section result time "in a sentence"
  cat "$work/summary"
  printf '\n%d ok, %d failed, %d not run, in %s. What failed is what we want to know; it is no fault of yours.\n' \
    "$ok" "$failed" "$left" "$(minutes "$SECONDS")"
  printf 'Names of the host and of users, paths and serial numbers were left out. docs/gpu-report.md explains the tables.\n'
  cat "$work/sections"
} | without_names >"$report" || exit 1
printf 'the report is %s\n%d passed, %d failed' "$report" "$ok" "$failed"
[ "$left" -eq 0 ] || printf ', %d skipped' "$left"
printf '\n'
[ "$failed" -eq 0 ] && [ -z "$interrupted" ]
