#!/usr/bin/env bash
# Breaks the protocol one line at a time and asserts that a test notices.
# Usage: run.sh [--source DIR]     CXX chooses the compiler. Ends with a line `mutants: N passed, M failed`.
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
[ "${1:-}" != --source ] || source=$(cd "$2" && pwd)
cxx=${CXX:-g++}
flags=(-std=c++20 -O1 -DVGPU_STEPS=1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# name | file | perl substitution over the whole file | what it breaks
mutants=(
  'owner-not-rechecked|accounting.cc|s/if \(recycled\) return false;/(void)recycled;/|model M1: reclaim does not re-check the owner word'
  'no-help-before-commit|accounting.cc|s/help\(usage, dev, seen\);  \/\/ BEFORE/\/\/ BEFORE/|model M2: the previous tag is replaced unhelped'
  'no-help-in-reclaim|accounting.cc|s/VGPU_STEP\(reclaim_read_total\);\n    help\(usage, dev, total\);/VGPU_STEP(reclaim_read_total);\n    (void)total;/|model M3: reclaim does not help first'
  'tag-not-compared|accounting.cc|s/(    const std::uint64_t made = )/    if (const auto again = total.load(); DeviceWord::unpack(again).units == tag.units) seen = again;\n$1/|model M5: the CAS compares the value alone'
  'current-before-total|accounting.cc|s/(    std::uint64_t seen = total\.load.*?\n    VGPU_STEP\(commit_read_total\);\n)(.*?)(    const bool applied = .*?\n    VGPU_STEP\(commit_read_current\);\n)/$3$2$1/s|model M6: commit reads the lane before the device word'
  'anybody-applies-by-store|accounting.cc|s/if constexpr \(kBy == By::owner\)/if constexpr (true)/|model ANYBODY_APPLIES_BY_STORE: a late reclaimer overwrites what the next owner of the slot made'
  'limit-without-commit|admin.cc|s/  commit\(usage, dev, \{number, from, to\}, nullptr\);/  (void)to;/|model NOBUMP: set_limit does not change the device word'
  'limit-without-help|admin.cc|s/  help\(usage, dev, total\);/  (void)total;/|set_limit does not finish its predecessor'
  'sweep-filters-by-value|accounting.cc|s/if \(\(lane\.current\.load\(memory_order_acquire\) \x7c lane\.next\.load\(memory_order_acquire\)\) != 0\) return true;/if (LaneWord::unpack(lane.current.load()).units != 0) return true;\n    VGPU_STEP(sweep_read_lanes);\n    if (LaneWord::unpack(lane.next.load()).units != 0) return true;/|a sweep passes by a lane that is being reclaimed'
  'help-does-not-look-again|accounting.cc|s/if \(!still_tagged\) return;/(void)still_tagged;/|help applies a word of a later operation'
  'guard-not-rechecked|guard.cc|s/if \(!still_fixed\) return;/(void)still_fixed;/|model FINISH_DOES_NOT_RECHECK_GUARD: a late finisher overwrites what the owner published'
  'guard-left-open|accounting.cc|s/if \(!retire_guards\(usage, dev, slot, owner\)\) return false;/(void)retire_guards;/|model RECLAIM_LEAVES_GUARD_OPEN: a thief and a sweeper publish two values for one operation'
  'owner-does-not-close|guard.cc|s/if \(closed\) return idle_units\(seen, (.*?)\);/guard.store(seen);\n        return idle_units(seen, $1);/|model OWNER_DOES_NOT_CLOSE: a thief changes the lane within an operation of its owner'
  'use-does-not-raise-target|guard.h|s/return idle >= units \? target \+ units : kStay;/return idle >= units ? target : kStay;/|model USE_DOES_NOT_RAISE_TARGET: what is used is taken'
  'guard-without-seq|words.h|s/return seq == \(lane\.seq & Seq::kMask\);/return true;/|model GUARD_WITHOUT_SEQ: what was fixed is applied twice'
  'thief-gives-up|guard.cc|s/if \(idle != 0 && fix_lane\((.*?)\)\) return idle;/return fix_lane($1) ? idle : 0;/|a thief leaves it to another one that may be dead'
  'limit-ignored|accounting.cc|s/if \(units > limit_units\) return Commit::no_room;/(void)limit_units;/|no limit at all'
)

compile() { "$cxx" "${flags[@]}" "-I$1" "-I$source/libvgpu" "-I$source" -c "$2" -o "$3"; }

for file in "$source"/libvgpu/{base,region}/*.cc; do
  compile "$source/libvgpu" "$file" "$work/$(basename "$file" .cc).o" &
  [ "$(jobs -rp | wc -l)" -lt 2 ] || wait -n
done
wait
compile "$source/libvgpu" "$source/tests/region/schedule_test.cc" "$work/schedule_test.o"

# Links the test with one object replaced and says whether it passes. That one comes first: what it has inline is what counts.
test_passes() {
  local replaced=$1 object=$2 objects=()
  for candidate in "$work"/*.o; do
    [ "$candidate" = "$work/$replaced.o" ] || objects+=("$candidate")
  done
  rm -f "$work/mutant"
  "$cxx" "$object" "${objects[@]}" -lgtest -lgtest_main -lpthread -o "$work/mutant" || exit 1
  timeout 300 "$work/mutant" --gtest_brief=1 --gtest_fail_fast >"$work/log" 2>&1
}

passed=0 failed=0
verdict() {  # name, ok?, sentence
  if [ "$2" = yes ]; then passed=$((passed + 1)); echo "ok    $1: $3"; else failed=$((failed + 1)); echo "FAIL  $1: $3"; fi
}

if test_passes accounting "$work/accounting.o"; then
  verdict unchanged yes "the protocol as it is passes"
else
  verdict unchanged no "the protocol as it is does not pass"
fi

mkdir -p "$work/tree"
for entry in "${mutants[@]}"; do
  IFS='|' read -r name file substitution what <<<"$entry"
  rm -rf "$work/tree/region"
  cp -r "$source/libvgpu/region" "$work/tree/region"
  perl -0pi -e "$substitution" "$work/tree/region/$file"
  if cmp -s "$work/tree/region/$file" "$source/libvgpu/region/$file"; then
    verdict "$name" no "the mutation no longer fits the source; mend it in $(basename "$0")"
    continue
  fi
  # A header is in guard.cc for what it says about guards, and in the test for what the test calls inline.
  object=${file%.*}
  [ "$file" != words.h ] || object=guard
  mutated=$work/tree/region/$object.cc
  [ "$file" != guard.h ] || { object=schedule_test mutated=$source/tests/region/schedule_test.cc; }
  compile "$work/tree" "$mutated" "$work/mutated.object"
  if test_passes "$object" "$work/mutated.object"; then
    verdict "$name" no "survived: $what"
  else
    verdict "$name" yes "caught: $what"
  fi
done

echo "mutants: $passed passed, $failed failed"
[ "$failed" = 0 ]
