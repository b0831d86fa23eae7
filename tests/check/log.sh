# Of check.sh: commands whose output goes to the stage's log, and is shown only when they fail. Sourced.

have() { command -v "$1" >/dev/null 2>&1; }

# For a stage that cannot run here: says why, and returns 77.
skip() {
  note=$1
  return 77
}

logged() {
  printf '+ %s\n' "$*" >>"$log"
  "$@" >>"$log" 2>&1 </dev/null
}

quietly() { logged "$@" || command_failed $? "$@"; }

# command_failed STATUS COMMAND...
command_failed() {
  printf 'failed (status %s): %.200s\n' "$1" "${*:2}"
  show_log
  return "$1"
}

show_log() {
  printf '  the end of %s:\n' "${log#"$source_dir"/}"
  tail -n 60 "$log" | cut -c 1-400 | sed 's/^/  | /'
}
