#!/bin/bash
# Runs one test of `make check`:  run_test.sh SECONDS [EMULATOR...] TEST
#
# Tests run beside each other; those in alone.txt have the machine to themselves, as far as tests are concerned: also the
# tests of other clones and other users wait. The lock is on a directory that every machine has, so that no file is left
# behind; it is held here and never by the test, whose daemons might outlive it. What a test gets in seconds counts from
# when it has the lock. The last line of its log says how long it took.
set -u -m  # -m: the test gets SIGINT as it would without us
here=${BASH_SOURCE[0]%/*}
seconds=$1
shift
name=${!#}
name=tests/${name##*tests/}

how=--shared
! grep -q "^$name " "$here/alone.txt" || how=--exclusive
exec 9</dev/shm || exit 99
flock "$how" 9 || exit 99

trap 'kill %1; wait -f %1; exit 1' INT TERM
TIMEFORMAT='took %R s, of the processors %U s + %S s'
time {
  timeout --kill-after=10 "$seconds" "$@" 9<&- &
  wait -f %1
}
