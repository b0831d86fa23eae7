#!/bin/sh
# Runs job_submit_test.lua in the Lua that Slurm has here, and in every newer one that is installed.
source=$(cd "$(dirname "$0")/../.." && pwd)
ran=
for lua in lua5.1 lua5.2 lua5.3 lua5.4; do
  command -v $lua >/dev/null || continue
  echo "$lua:"
  $lua "$source/tests/slurm/job_submit_test.lua" "$source" || exit 1
  ran=yes
done
[ -n "$ran" ] || { echo "skipped: lua5.1 is missing; install lua5.1" && exit 77; }
