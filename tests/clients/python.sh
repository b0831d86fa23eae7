# Sourced after lib.sh by the tests of clients that come from the Python registry.
#   packages NAME...             installs them as pinned in requirements.txt, for this test alone, or skips it with the reason
#   run SCRIPT ARGUMENT...       a script of this folder in that Python; $status, and its output in $scratch/out and err
#   under_limit NAME SCRIPT SIZE [FILLED]
#                                in a job with that limit and half of the time, with an oracle beside it: on a kind device the
#                                script works, and then takes all it can get; on one like hardware it takes that at once. It
#                                must be at least FILLED MiB
# $launcher, if set, starts the script as $ranks processes. What these write to files $scratch/err.* is part of their output.
# NVIDIA's runtime library is not among the packages: it refuses a driver that is not NVIDIA's, so a client that cannot do without
# it is no client of the simulated one.

packages() {
  python3 -m pip --version >/dev/null 2>&1 || skip "pip is not there; install the Debian package python3-pip"
  python3 -m venv --without-pip "$scratch/venv" || fail "no virtual environment"
  client=$1
  pinned=
  for name; do
    pinned="$pinned $(grep -ix "$name==.*" "$clients/requirements.txt")" || fail "requirements.txt has no version of $name"
  done
  # shellcheck disable=SC2086  # a list
  python3 -m pip --python "$scratch/venv/bin/python" install --quiet --no-deps --only-binary=:all: --no-compile --retries 1 \
    --timeout 20 $pinned >"$scratch/pip" 2>&1 ||
    skip "the Python registry does not give $client: $(grep -m 1 '^ERROR' "$scratch/pip")"
}

run() { # SCRIPT ARGUMENT...
  script=$1
  shift
  PYTHONDONTWRITEBYTECODE=1 HOME="$scratch" timeout 120 env -u SIMGPU_LOG ${launcher:-} "$scratch/venv/bin/python" \
    "$clients/$script" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$?
  [ -z "${launcher:-}" ] || { cat "$scratch"/err.* >>"$scratch/err" && rm "$scratch"/err.*; }
  cat "$scratch/out" "$scratch/err"
}

works() { # SCRIPT ARGUMENT...
  run "$@"
  expect "the program ran" test $status -eq 0
  expect "to its end" grep -qx 'all done' "$scratch/out"
}

under_limit() { # NAME SCRIPT SIZE [FILLED]
  for profile in ideal hardware; do
    orders='work fill'
    [ $profile = ideal ] || orders=fill
    node_lines="profile=$profile; context=300MiB; visibility_ms=80; count_calls=yes;"
    node
    job "$3" 50
    watch "$1-$profile"
    works "$2" $orders
    filled=$(sed -n 's/^filled \([0-9]*\) MiB$/\1/p' "$scratch/out")
    expect "it had at least ${4:-1} MiB" test "${filled:-0}" -ge "${4:-1}"
    expect "libvgpu says why it got no more, once for each rank at most" refused_at_most "${ranks:-1}" "$scratch/err"
    end_job
  done
  node_lines=
}
