# Of check.sh: runs test programs through make, and counts what they did. Sourced.

# run_tests_in DIRECTORY TARGET LIST [COMMAND...]: make's variable LIST names the tests that TARGET runs; the command, if any,
# runs make. Tests run side by side but for those in tests/alone.txt.
run_tests_in() {
  local directory=$1 target=$2 tests status=0
  read -ra tests < <(make -s -C "$directory" --no-print-directory print NAME="$3")
  (cd "$directory" && rm -f "${tests[@]/%/.log}" "${tests[@]/%/.trs}")
  with_progress tests measure_tests logged "${@:4}" make -C "$directory" -j"$(nproc)" --no-print-directory "$target" \
    TEST_TIMEOUT="$test_timeout" || status=$?
  count_tests
  if [ "$status" -eq 0 ]; then all_ended; else
    [ "$failed" -gt 0 ] || command_failed "$status" "make $target"
    return "$status"
  fi
}

# A make that is content has run every test of the list, or the list is wrong and nobody would notice.
all_ended() {
  local test missing=()
  for test in "${tests[@]}"; do [ -e "$directory/$test.trs" ] || missing+=("$test"); done
  [ ${#tests[@]} -gt 0 ] && [ ${#missing[@]} -eq 0 ] || { printf 'failed: these tests never ran: %s\n' "${missing[*]:-all}" && return 1; }
}

# A test writes NAME.log while it runs, and NAME.trs at its end.
measure_tests() {
  local test ended=0 running=()
  for test in "${tests[@]}"; do
    if [ -e "$directory/$test.trs" ]; then
      ended=$((ended + 1))
    elif [ -e "$directory/$test.log" ]; then
      running+=("${test##*/}")
    fi
  done
  echo "$ended ${#tests[@]} ${running[*]}"
}

# Reads what the test programs wrote: counts, says what was skipped and why, shows what failed.
count_tests() {
  local test output counts ok bad left
  for test in "${tests[@]}"; do
    output=$directory/$test.log
    [ -e "$directory/$test.trs" ] || continue # make was stopped before
    counts=$(awk '
      /^\[ RUN      \] /            { running = 1; reason = "no reason given" }
      wanted                        { reason = $0; wanted = 0 }
      /: Skipped$/                  { wanted = 1 }
      /^\[       OK \] .* ms\)$/    { ok++; running = 0 }
      /^\[  FAILED  \] .* ms\)$/    { bad++; running = 0 }
      /^\[  SKIPPED \] .* ms\)$/    { left++; running = 0; print "  skipped: " $4 ": " reason >"/dev/stderr" }
      END                           { print ok + 0, bad + running, left + 0 }' "$output" 2>&3)
    read -r ok bad left <<<"$counts"
    case $(sed -n 's/^:test-result: *//p' "$directory/$test.trs") in
      PASS*) [ $((ok + bad + left)) -gt 0 ] || ok=1 ;;
      SKIP*)
        [ $((ok + bad + left)) -gt 0 ] ||
          { left=1 && printf '  skipped: %s: %s\n' "${test##*/}" "$(grep '^skipped: ' "$output" | tail -n 1 | cut -c 10-)"; }
        ;;
      *)
        [ "$bad" -gt 0 ] || bad=1
        show_failures "$output"
        ;;
    esac
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
  done 3>&1
}

# What a test said itself in a line "FAILED: ...", else which of its tests failed or never ended.
why_failed() {
  awk '
    /^FAILED: /                                 { said = substr($0, 9); exit }
    /^\[ RUN      \] /                          { running = $4 }
    /^\[  FAILED  \] .* ms\)$/                  { names = names ", " running }
    /^\[  (     OK|SKIPPED|FAILED ) \] .* ms\)$/ { running = "" }
    END { if (running != "") names = names ", " running; print said != "" ? said : substr(names, 3) }' "$1" | cut -c 1-300
}

# check.sh repeats these lines at its end, where a log that was cut still has them.   note_failure LOG [WHY]
note_failure() {
  local line="failed: $1${2:+: $2}"
  failed_tests+=("$line")
  printf '%s\n' "$line"
}

# The output of the tests that failed or never ended. When that is nothing, because the program is no GoogleTest or a
# sanitizer complained at its end, all of it.
show_failures() {
  note_failure "${1#"$source_dir"/}" "$(why_failed "$1")"
  awk '
                                         { all = all $0 "\n" }
    /^\[ RUN      \] /                   { block = ""; inside = 1 }
    inside                               { block = block $0 "\n" }
    /^\[  (     OK|SKIPPED) \] .* ms\)$/ { inside = 0 }
    /^\[  FAILED  \] .* ms\)$/           { bad = bad block; inside = 0 }
    END                                  { if (inside) bad = bad block; printf "%s", bad != "" ? bad : all }' "$1" |
    tail -n 200 | sed 's/^/  | /'
}

# For a command that ends with "N passed, M failed" and writes a line that matches PATTERN for each of them: the stage counts
# what it counted.   counted PATTERN COMMAND...
counted() {
  local status=0 pattern='([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$'
  measured tests "$1" 2 0 "${@:2}" || status=$?
  if [[ $(grep -E "$pattern" "$log" | tail -n 1) =~ $pattern ]]; then
    passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]} skipped=${BASH_REMATCH[4]:-0}
  fi
  return "$status"
}
