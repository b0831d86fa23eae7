# The checks of driver.sh, which need no figures of the driver's own. It says what it saw before each of them; unless one fails,
# the checks are enough.
section_limit() {
  local status
  (cd "$build" && unset SIMGPU_NODE && VGPU_GPU=$([ -n "$simulated" ] || echo real) sh "$here/driver.sh") >"$work/limit" 2>&1
  status=$?
  case $status in
    0) grep '^ok: ' "$work/limit" && conclude "$(grep -c '^ok: ' "$work/limit") checks of a job with a limit" ;;
    77) not_run "$(sed -n 's/^skipped: //p' "$work/limit")" ;;
    *) cat "$work/limit" && conclude "$(grep -m 1 '^FAILED: ' "$work/limit")" ;;
  esac
  return "$status"
}
