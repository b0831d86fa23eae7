#!/bin/bash
# Tests of check.sh itself: what it counts, what it shows meanwhile, what it says to those who mistype.
set -u
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
source_dir=$PWD build_dir=$work log_dir=$work/log stage=stage log=$work/log/stage.log level=quick
mkdir "$log_dir" && : >"$log"
for part in log progress packages tests stages; do . "tests/check/$part.sh" || exit 1; done

failures=0
equal() { [ "$2" = "$3" ] || { printf '%s: expected\n%s\nbut got\n%s\n' "$1" "$2" "$3" && failures=$((failures + 1)); }; }
has() { [[ $2 == *"$1"* ]] || { printf "'%s' is missing in\n%s\n" "$1" "$2" && failures=$((failures + 1)); }; }

# ---- mistyped -------------------------------------------------------------------------------------------------------

equal "an unknown option" "check.sh: unknown option '--al'; see ./check.sh --help (2)" "$(./check.sh --al 2>&1) ($?)"
equal "an unknown stage" "check.sh: there is no stage 'rel'; see ./check.sh --help (2)" "$(./check.sh --only format,rel 2>&1) ($?)"
equal "no stage" "check.sh: --only needs the name of a stage; see ./check.sh --help (2)" "$(./check.sh --only 2>&1) ($?)"

# ---- the end --------------------------------------------------------------------------------------------------------

equal "the last lines" $'failed: tests/a.log: why\n1 passed, 1 failed' "$(
  sed '$d' check.sh >"$work/check.sh" && ln -s "$source_dir/tests" "$work/tests" && . "$work/check.sh" || exit
  failed_tests=('failed: tests/a.log: why') total_passed=1 total_failed=1
  report | tail -n 2
)"

# ---- counting -------------------------------------------------------------------------------------------------------

# ended NAME RESULT, with the log as input
ended() { cat >"$work/$1.log" && echo ":test-result: $2" >"$work/$1.trs"; }
ended three_test FAIL <<'END'
[ RUN      ] A.Passes
[       OK ] A.Passes (1 ms)
[ RUN      ] A.IsSkipped
a_test.cc:7: Skipped
not as root
[  SKIPPED ] A.IsSkipped (0 ms)
[ RUN      ] A.Fails
one is two
[  FAILED  ] A.Fails (3 ms)
[ RUN      ] A.NeverEnds
END
ended passes.sh PASS <<<'all is well'
ended fails.sh FAIL <<<'all is lost'
ended skips.sh SKIP <<<'skipped: there is no moon'
ended says_why.sh FAIL <<'END'
ok: the sun
FAILED: the moon: it is not there
and more
END
directory=$work tests=(three_test passes.sh fails.sh skips.sh says_why.sh never_started_test) passed=0 failed=0 skipped=0
failed_tests=()
count_tests >"$work/said"
equal "what was counted" "2 passed, 4 failed, 2 skipped" "$passed passed, $failed failed, $skipped skipped"
shown=${work#"$source_dir"/}
equal "what failed, and why" "failed: $shown/three_test.log: A.Fails, A.NeverEnds
failed: $shown/fails.sh.log
failed: $shown/says_why.sh.log: the moon: it is not there" "$(printf '%s\n' "${failed_tests[@]}")"
has 'failed: '"$shown"'/says_why.sh.log: the moon: it is not there' "$(<"$work/said")"
has 'skipped: A.IsSkipped: not as root' "$(<"$work/said")"
has 'skipped: skips.sh: there is no moon' "$(<"$work/said")"
has '| one is two' "$(<"$work/said")"
has '| [ RUN      ] A.NeverEnds' "$(<"$work/said")"
has '| all is lost' "$(<"$work/said")"
equal "a test that never ran" "failed: these tests never ran: never_started_test (1)" "$(all_ended) ($?)"
equal "no test at all" "failed: these tests never ran: all (1)" "$(tests=() && all_ended) ($?)"
equal "what runs" "5 6 " "$(measure_tests)"
: >"$work/never_started_test.log"
equal "what runs" "5 6 never_started_test" "$(measure_tests)"

counted '^ok ' printf '%s\n' 'ok first' 'ok second' 'x: 2 passed, 1 failed' >/dev/null
equal "what a script counted" "2 passed, 1 failed, 0 skipped" "$passed passed, $failed failed, $skipped skipped"

# ---- progress -------------------------------------------------------------------------------------------------------

make_objects() { echo '  CXX      first.o' && sleep 1.3 && echo '  CXX      second.o' && sleep 1.3; }
build() { measured build '^  [A-Z]+ +' 2 2 make_objects; }
interval=1
has '   stage: build: 1 of 2, 0:01; now first.o' "$(build)"
printf 'stage build\t100\n' >"$log_dir/seconds" # what the last run took
has ', about 1:3' "$(build)"
has $'stage build\t' "$(<"$log_dir/seconds")"
[ "$(recall_seconds build)" -lt 100 ] || { echo "this run's time was not kept" && failures=$((failures + 1)); }
export -f make_objects
on_terminal=$(TERM=xterm SHELL=$BASH script -qec "bash -c 'log=$log log_dir=$log_dir stage=stage; . tests/check/log.sh; . tests/check/progress.sh
  measured build \"^  [A-Z]+ +\" 2 2 make_objects; echo; echo the end'" /dev/null </dev/null)
has $'\r\e[K   stage: build: 1 of 2' "$on_terminal"
has $'\r\e[K\r\nthe end' "$on_terminal"

broken() { echo 'it broke here' && return 3; }
said=$(measured build x 1 0 broken)
equal "the status of what failed" 3 $?
has 'failed (status 3): broken' "$said"
has '| it broke here' "$said"

# ---- the report of a GPU ----------------------------------------------------------------------------------------------

printf '%s\n' 'section machine, at most 1:00: The machine' 'section books, at most 5:00: Books' >"$log"
equal "how far the protocol is" "1 $(grep -c '^[^#]' tests/gpu/sections/sections.txt) books" "$(measure_gpu_sections)"
printf '%s\n' 'slurm-vgpu 1' '' 'section  result  time' 'machine  ok  0:01' '' 'more' >"$work/report.txt"
printf '%s\n' "the report is $work/report.txt" '7 passed, 1 failed, 2 skipped' >>"$log"
show_gpu_report >"$work/said"
equal "the summary of a report" $'   section  result  time\n   machine  ok  0:01\n   ' "$(<"$work/said")"
equal "what a report counted" "7 passed, 1 failed, 2 skipped" "$passed passed, $failed failed, $skipped skipped"
equal "what to do with it" "please read ${work#"$source_dir"/}/report.txt and send it to us" "$note"

# ---- packages -------------------------------------------------------------------------------------------------------

declare -A levels_of=([demo]=demo [quick]="demo quick")
has $'g++\n' "$(level=demo listed_packages must)"
has $'libgtest-dev\n' "$(listed_packages must)"
equal "lines of packages.txt that nobody understands" "" \
  "$(grep -vE '^(#.*|[a-z0-9.+-]+ +(demo|quick|all) +(must|may) +.+|)$' tests/check/packages.txt)"

[ "$failures" -eq 0 ]
