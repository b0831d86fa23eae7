#!/usr/bin/env bash
# Checks accounting.pml with spin: no configuration may have an error, every mutation must be caught.
#
#   run.sh [--quick | --long]      --quick is the default; --long also runs the larger configurations (10 minutes, 4 GiB)
#
# Exit status: 0 all passed, 1 something failed, 2 wrong usage, 77 skipped because spin or a C compiler is missing.
set -euo pipefail

model=$(cd "$(dirname "$0")" && pwd)/accounting.pml

# name | settings, see the top of accounting.pml
quick_configurations=(
  'crashes       | -DRANKS=2 -DOPS=1 -DSWEEPERS=1 -DCRASHES=2'
  'reuse         | -DRANKS=3 -DRANK_SLOTS=1 -DOPS=1 -DSWEEPERS=0 -DCRASHES=1'
  'reuse-twice   | -DRANKS=2 -DRANK_SLOTS=1 -DOPS=2 -DSWEEPERS=1 -DCRASHES=0'
  'exec          | -DRANKS=2 -DRANK_SLOTS=1 -DOPS=1 -DSWEEPERS=1 -DCRASHES=2 -DEXEC'
  'kinds         | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=2 -DSWEEPERS=2 -DCRASHES=1 -DKINDS=2'
  'releases      | -DRANKS=2 -DOPS=2 -DSWEEPERS=0 -DCRASHES=2'
  'forced        | -DRANKS=2 -DOPS=2 -DSWEEPERS=0 -DCRASHES=2 -DFORCED'
  'limit         | -DRANKS=2 -DOPS=1 -DSWEEPERS=0 -DCRASHES=0 -DADMINS=1'
  'two-admins    | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=2 -DSWEEPERS=0 -DCRASHES=2 -DADMINS=2'
  'snapshot      | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=2 -DSWEEPERS=1 -DCRASHES=2 -DREADERS=1'
  'steal         | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=2 -DSWEEPERS=0 -DCRASHES=1 -DKINDS=2 -DGUARDS -DTHIEVES=2'
  'steal-empty   | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=3 -DSWEEPERS=0 -DCRASHES=1 -DKINDS=2 -DGUARDS -DTHIEVES=1'
  'steal-sweep   | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=3 -DSWEEPERS=1 -DCRASHES=0 -DKINDS=2 -DGUARDS -DTHIEVES=1'
  'steal-reuse   | -DRANKS=2 -DRANK_SLOTS=1 -DOPS=1 -DSWEEPERS=0 -DCRASHES=1 -DKINDS=2 -DGUARDS -DTHIEVES=1'
  'alone         | -DRANKS=2 -DOPS=1 -DSWEEPERS=0 -DCRASHES=1 -DALONE=39'
  'alone-steal   | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=2 -DSWEEPERS=0 -DCRASHES=1 -DKINDS=2 -DGUARDS -DTHIEVES=1 -DALONE=24'
  'alone-admin   | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=1 -DSWEEPERS=0 -DCRASHES=1 -DADMINS=1 -DALONE=16'
)
long_configurations=(
  'long-crashes    | -DRANKS=2 -DOPS=2 -DSWEEPERS=1 -DCRASHES=1'
  'long-reuse      | -DRANKS=3 -DRANK_SLOTS=2 -DOPS=1 -DSWEEPERS=0 -DCRASHES=2'
  'long-exec       | -DRANKS=2 -DRANK_SLOTS=1 -DOPS=1 -DSWEEPERS=2 -DCRASHES=0 -DEXEC'
  'long-kinds      | -DRANKS=2 -DOPS=1 -DSWEEPERS=1 -DCRASHES=1 -DKINDS=2'
  'long-limit      | -DRANKS=2 -DOPS=2 -DSWEEPERS=0 -DCRASHES=0 -DADMINS=1'
  'long-two-admins | -DRANKS=2 -DOPS=1 -DSWEEPERS=0 -DCRASHES=2 -DADMINS=2'
  'long-snapshot   | -DRANKS=2 -DRANK_SLOTS=1 -DOPS=1 -DSWEEPERS=1 -DCRASHES=0 -DREADERS=1'
  'long-steal-sweep | -DRANKS=1 -DRANK_SLOTS=1 -DOPS=3 -DSWEEPERS=1 -DCRASHES=1 -DKINDS=2 -DGUARDS -DTHIEVES=1'
  'long-steal-reuse | -DRANKS=2 -DRANK_SLOTS=1 -DOPS=2 -DSWEEPERS=0 -DCRASHES=1 -DKINDS=2 -DGUARDS -DTHIEVES=1'
  'long-alone      | -DRANKS=2 -DOPS=2 -DSWEEPERS=0 -DCRASHES=1 -DALONE=54'
)

# the mutation | the configuration that catches it | the check that must fail
mutations=(
  'RECLAIM_DOES_NOT_RECHECK_OWNER | reuse      | covered'    # M1
  'COMMIT_DOES_NOT_HELP           | crashes    | exact'      # M2
  'RECLAIM_DOES_NOT_HELP          | crashes    | emptied'    # M3
  'CAS_COMPARES_VALUE_ONLY        | two-admins | exact'      # M5
  'ANYBODY_APPLIES_BY_STORE       | reuse-twice | exact'     # a late reclaimer overwrites what the next owner made
  'COMMIT_READS_CUR_BEFORE_D      | reuse      | exact'      # M6
  'SET_LIMIT_DOES_NOT_COMMIT      | two-admins | obeyed'     # NOBUMP
  'SET_LIMIT_DOES_NOT_HELP        | two-admins | obeyed'     # the seventh
  'LIMIT_READ_ONCE                | two-admins | obeyed'     # before D, not after it
  'RECLAIM_READS_OWNER_FIRST      | reuse      | covered'    # before cur and next, not after them
  'GENERATION_KEPT                | exec       | settled'    # a slot given back keeps its generation
  'SWEEP_FILTERS_BY_VALUE         | crashes    | swept'      # val(cur), then val(next), instead of the whole words
  'SNAPSHOT_NEED_NOT_ADD_UP       | snapshot   | pictured'   # the same D before and after is not enough
  'FINISH_DOES_NOT_RECHECK_GUARD  | steal-empty | exact'     # a late finisher overwrites what the owner published
  'GUARD_WITHOUT_SEQ              | steal-empty | exact'     # what was fixed is applied again later
  'OWNER_DOES_NOT_CLOSE           | steal-empty | exact'     # two operations with one sequence number
  'USE_DOES_NOT_RAISE_TARGET      | steal-empty | covered'   # a thief takes what is used
  'RECLAIM_LEAVES_GUARD_OPEN      | steal-sweep | emptied'   # a thief and a reclaimer publish different values
  'COMMIT_WAITS                   | alone      | unwaited'   # for the other process to apply its operation
)

usage() {
  echo "usage: $0 [--quick | --long]" >&2
  exit 2
}

mode=quick
for argument in "$@"; do
  case $argument in
    --quick) mode=quick ;;
    --long) mode=long ;;
    *) usage ;;
  esac
done

compiler=${CC:-cc}
for tool in spin ${compiler%% *}; do
  if ! command -v "$tool" >/dev/null; then
    echo "model: SKIPPED: $tool is missing; install the Debian packages spin and gcc"
    exit 77
  fi
done

work=$(mktemp -d "${TMPDIR:-/tmp}/vgpu-model.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cp "$model" "$work"
cd "$work"

passed=0
failed=0
declare -A settings_of

# split 'a | b | c': sets the array `fields`, without the blanks around each.
split() {
  local field
  fields=()
  while IFS= read -r -d '|' field; do
    read -r field <<<"$field" || true
    fields+=("$field")
  done <<<"$1|"
}

# search SETTINGS: an exhaustive search. Sets states, errors, complaint and seconds; leaves pan's output in ./pan.out.
search() {
  local settings=$1 started=$EPOCHREALTIME
  local options=(-DSAFETY -w)
  if [[ $effort == long ]]; then
    options+=(-O1 -DCOLLAPSE -DMEMLIM=3800)
  else
    options+=(-O0 -DMEMLIM=1500)  # compiling is most of the time
  fi
  if [[ $settings == *ALONE* ]]; then
    options+=(-DNOREDUCE)  # spin's partial order reduction does not know about `provided`
  fi

  states=0 errors=none complaint=
  rm -f pan pan.out ./*.trail
  # shellcheck disable=SC2086  # several words each
  if spin -a $settings accounting.pml >pan.out 2>&1 && $compiler "${options[@]}" -o pan pan.c >>pan.out 2>&1; then
    ./pan -n -m20000 -w22 >pan.out 2>&1 || true
    states=$(awk '/states, stored/ { print $1; exit }' pan.out)
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
    complaint=$(grep -m1 '^pan:1:' pan.out || true)
  fi
  seconds=$(awk -v from="$started" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }')
}

# The search visited every state there is, with every check on.
was_exhaustive() {
  grep -q 'Full statespace search' pan.out &&
    grep -q 'assertion violations.*+' pan.out &&
    grep -q 'invalid end states.*+' pan.out &&
    ! grep -qE 'not completed|too small|MEMLIM|out of memory|hash-compact|bit-state|truncated' pan.out
}

report() {
  local verdict=$1 name=$2 note=$3
  if [[ $verdict == ok ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
  printf '%-6s %-31s %10s states  %4s errors  %6s s  %s\n' "$verdict" "$name" "$states" "$errors" "$seconds" "$note"
}

show_failure() {
  local settings=$1
  head -n 20 pan.out | cut -c 1-200 | sed 's/^/    /'
  if [[ -e accounting.pml.trail ]]; then
    echo "    the last steps of the counterexample, with $settings:"
    # shellcheck disable=SC2086
    spin -t -p -g $settings accounting.pml 2>&1 | cut -c 1-160 | tail -n 60 | sed 's/^/    /'
  fi
}

check_configuration() {
  local name=$1 settings=$2
  search "$settings"
  if [[ $errors == 0 ]] && was_exhaustive; then
    report ok "$name" ''
  else
    report FAILED "$name" "expected a complete search without errors: $settings"
    show_failure "$settings"
  fi
}

check_mutation() {
  local name=$1 configuration=$2 expected=$3
  search "${settings_of[$configuration]} -DMUT_$name"
  if [[ $errors == 1 && $complaint =~ 'assertion violated '\(+$expected'||' ]]; then
    report ok "$name" "caught by $configuration"
  else
    report FAILED "$name" "expected $configuration to catch it: $expected"
    head -n 20 pan.out | cut -c 1-200 | sed 's/^/    /'
  fi
}

effort=quick
for entry in "${quick_configurations[@]}"; do
  split "$entry"
  settings_of[${fields[0]}]=${fields[1]}
  check_configuration "${fields[@]}"
done
for entry in "${mutations[@]}"; do
  split "$entry"
  # A name that the model does not know would change nothing; say so instead of blaming the configuration.
  grep -q "MUT_${fields[0]}\b" accounting.pml || { echo "model: accounting.pml has no MUT_${fields[0]}" >&2; exit 1; }
  check_mutation "${fields[@]}"
done
if [[ $mode == long ]]; then
  effort=long
  for entry in "${long_configurations[@]}"; do
    split "$entry"
    check_configuration "${fields[@]}"
  done
fi

echo "model: $passed passed, $failed failed"
[[ $failed == 0 ]]
