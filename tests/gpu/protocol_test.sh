#!/bin/bash
# protocol.sh by itself, with sections that do nothing: results, deadlines, names that must not show.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build/tests/gpu" "$work/sections" "$work/out" "$work/verysecretperson"
ln -s /bin/true "$work/build/tests/gpu/gpu_tables"
export HOME=$work/verysecretperson
id() { echo verysecretuser; }
uname() { echo secrethost7; }
export -f id uname

section() { # NAME SECONDS BODY
  echo "$1 $2 The section $1" >>"$work/sections/sections.txt"
  printf 'section_%s() { %s; }\n' "$1" "$3" >"$work/sections/$1.sh"
}
section works 10 'echo a table; conclude "it works"; conclude "twice"'
section breaks 10 'conclude "it broke"; echo in pieces >&2; return 3'
section cannot 10 'not_run "there is no moon"'
section hangs 1 'echo half a table; sleep 600 & echo $! >"$out/pid"; wait'
section tells 10 'echo "$HOME/x /home/someone/y"; echo "secrethost7: verysecretuser"; echo "vgpu-run 7 on $(uname -n), GPU-516d6770-7500-4000-8000-000000000001"'

protocol() { "$here/protocol.sh" --build "$work/build" --out "$work/out" --sections "$work/sections" "$@"; }
said=$(protocol 2>&1)
status=$?
report=$(cat "$work"/out/vgpu-gpu-report-*.txt)

failures=0
complain() { printf '%s\n' "$1" && failures=$((failures + 1)); }
has() { grep -qE -- "$1" <<<"$report" || complain "'$1' is missing in the report"; }
has_not() { ! grep -qF -- "$1" <<<"$report" || complain "'$1' is in the report"; }

[ "$status" -eq 1 ] || complain "the status is $status"
[[ $said == *'2 passed, 2 failed, 1 skipped' ]] || complain "the last line is not the count: $said"
[[ $said == *'section hangs, at most 0:01: The section hangs'* ]] || complain "no progress is shown: $said"
has '^works +ok +0:0[0-9]  it works; twice$'
has '^breaks +failed +0:0[0-9]  it broke$'
has '^  \| in pieces$'
has '^cannot +not run +0:0[0-9]  there is no moon$'
has '^hangs +failed +0:0[0-9]  did not end within 1 s; before that: half a table$'
has '^2 ok, 2 failed, 1 not run'
has '^PATH/x PATH$'
has '^vgpu-run 7 on HOST, GPU-UUID$'
has '^HOST: USER$'
has_not verysecret
has_not someone
! grep -qs '^State:.[^ZX]' "/proc/$(<"$work/out/pid")/status" || complain "what a section started outlives it"
[ "$(head -n 3 <<<"$report" | grep -c '^section  *result')" = 1 ] || complain "the summary does not come first"

# Interrupted, it reports what it has.
rm "$work"/sections/* "$work"/out/*
section works 10 'conclude "it works"'
section waits 60 'touch "$out/waiting"; sleep 50'
section never 10 'conclude "too late"'
"$here/protocol.sh" --build "$work/build" --out "$work/out" --sections "$work/sections" >/dev/null 2>&1 &
for _ in {1..300}; do [ ! -e "$work/out/waiting" ] || break; sleep 0.1; done
kill $!
wait $!
report=$(cat "$work"/out/vgpu-gpu-report-*.txt)
has '^works +ok '
has '^waits +not run +0:[0-9]+  interrupted$'
has '^never +not run +0:00  interrupted$'

echo 'endless 3600 The section endless' >>"$work/sections/sections.txt"
said=$(protocol 2>&1)
[ "$said" = "protocol.sh: the sections may take 3680 s, which is more than an hour" ] || complain "too long, but: $said"

# What the section about shares calls a failure.
judged() { printf '%s\n' "$@" | (simulated=yes && . "$here/sections/shares.sh" && judge >/dev/null); }
judged '21.9 20 99 a' '46 50 99 b' || complain "2 points more and 92 % are within the limits"
judged '30 50 31 a' || complain "a program that gets no more without a limit has what it could have"
! judged '22.1 20 99 a' '50 50 99 b' || complain "2.1 points too much are not noticed"
! judged '20 20 99 a' '44 50 99 b' || complain "88 % of a share are not noticed"

# The protocol itself.
[ "$(awk '/^[^#]/ { sum += $2 } END { print sum }' "$here/sections/sections.txt")" -lt 3600 ] || complain "the protocol takes an hour"

[ "$failures" -eq 0 ] || { printf '%s\n' "$report" && exit 1; }
