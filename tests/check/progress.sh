# Of check.sh: shows that something long is alive. On a terminal one line, redrawn in place; elsewhere a line every 30 s.
# Sourced.
#
#   with_progress STEP MEASURE COMMAND...   runs the command; the function MEASURE prints "DONE TOTAL WHAT IS RUNNING NOW",
#                                           with 0 for a total that nobody knows
#
# How long a step took is kept in build/log/seconds, for the estimate of the next run.

if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then redraws=yes interval=1; else redraws= interval=30; fi

with_progress() {
  local step=$1 started=$SECONDS watched watcher status
  exec {watched}> >(watch_progress "$@")
  watcher=$!
  "${@:3}"
  status=$?
  echo ended >&"$watched"
  exec {watched}>&-
  wait "$watcher"
  [ "$status" -ne 0 ] || remember_seconds "$step" $((SECONDS - started))
  return "$status"
}

# Until its input says something, or ends because check.sh was killed.
watch_progress() {
  local step=$1 measure=$2 started=$SECONDS expected width line
  expected=$(recall_seconds "$step")
  while read -rt "$interval"; [ $? -gt 128 ]; do
    line="   $stage: $step: $(progress_text $((SECONDS - started)) "$expected" $("$measure"))"
    if [ -n "$redraws" ]; then
      read -r _ width < <(stty size 2>/dev/null </dev/tty) || width=80
      printf '\r\033[K%s' "${line:0:width-1}"
    else
      printf '%s\n' "${line:0:150}"
    fi
  done
  [ -z "$redraws" ] || printf '\r\033[K'
}

# progress_text ELAPSED EXPECTED DONE TOTAL WHAT...
progress_text() {
  local elapsed=$1 expected=$2 done=$3 total=$4
  printf '%s' "$done"
  [ "$total" -le 0 ] || printf ' of %s' "$total"
  printf ', %s' "$(minutes "$elapsed")"
  [ -z "$expected" ] || [ "$expected" -le "$elapsed" ] || printf ', about %s left' "$(minutes $((expected - elapsed)))"
  [ $# -le 4 ] || printf '; now %s' "${*:5}"
}

minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

remember_seconds() {
  { grep -v "^$stage $1	" "$log_dir/seconds" 2>/dev/null
    printf '%s %s\t%s\n' "$stage" "$1" "$2"; } >"$log_dir/seconds.new" && mv "$log_dir/seconds.new" "$log_dir/seconds"
}

recall_seconds() { sed -n "s/^$stage $1	//p" "$log_dir/seconds" 2>/dev/null; }

# ---- what can be measured -------------------------------------------------------------------------------------------

# The lines of this step's log that match $counted_lines, of $expected_lines; a word of the last one says what runs.
measure_log() {
  tail -c "+$log_offset" "$log" | awk -v pattern="$counted_lines" -v total="$expected_lines" -v word="$name_word" '
    $0 ~ pattern { done++; now = $word }
    END          { print done + 0, total, now }'
}

# measured STEP PATTERN WORD TOTAL COMMAND...: like quietly, for a command that writes, for each thing done, a line that matches
# PATTERN and has its name as word number WORD.
measured() {
  local counted_lines=$2 name_word=$3 expected_lines=$4 log_offset
  log_offset=$(($(stat -c %s "$log") + 1))
  with_progress "$1" measure_log logged "${@:5}" || command_failed $? "${@:5}"
}
