#!/bin/bash
# demo.sh shows what it says it shows, and what the README says, within a minute, and leaves nothing.
set -u
unset TMPDIR # the jobs' users may not write there
. "$(dirname "$0")/demo_lib.sh"
. "$(dirname "$0")/transcript.sh"

start=$SECONDS
output=$("$demo" --shell --simulated "$build" 2>&1 <<'END'
echo "its directory is $PWD."
on n1 vgpuctl report 7
srun -Q --gpu-mem=1G take 100 0 </dev/null
on n1 vgpu-run --gpu-mem=1G -- sh -c 'echo "alone: rank $VGPU_RANK of $VGPU_SIZE"'
exit 7
END
)
status=$?
took=$((SECONDS - start))
echo "$output"
echo "took $took s"

[ $status -eq 0 ] || wrong "status $status"
[ $took -lt 60 ] || wrong "it took $took s"
has '^vgpu: job 1, GPU GPU-[-0-9a-f]*: out of memory: 1756MiB used \+ 500MiB asked > 2048MiB limit; .*; ask for more with --gpu-mem$'
[ "$(grep -c 'has its 500 MiB$' <<<"$output")" -eq 3 ] || wrong "not three of four ranks got their memory"
has '^vgpu: job 1 on n1, GPU .*: peak 1756MiB of 2GiB \(86 %\), 1 allocation refused'
has '^rank . on n2 has its 1500 MiB$'
has "^srun: error: vgpu: --gpu-mem=8X: 'X' is not a unit"
has '--gpu-mem=9G: no GPU that the job can get has more than 8G'
has '^3 +RUNNING +gres:shard:4 +n1$'
has '^4 +RUNNING +gres:shard:3 +n1$'
has '^5 +PENDING +gres:shard:2 +\(Resources\)$'
has '^ +4  root +0   2064MiB +3GiB   67% +1 +0  ok$'
has '^job 3, GPU 0: 5GiB of memory'
has '^rank 0 on n1 has its 4500 MiB now$'
has '^ +5  root +0   1064MiB +2GiB'
has '^1 s of GPU time in [12]\.. s$'
has '^1 s of GPU time in [3-6]\.. s$'
has '^GPU Memory Average: 4564MiB, of 00:00:.. that were sampled$'
has '^GPU Memory Efficiency: 89.14% of 5GiB$'
has '^GPU Memory Limit: 4GiB at first, 5GiB at the end$'
has '^SM Average: (1[0-9]|2[0-6])\...% of the GPU$' # one second of four, and of what it took to start
grep -A1 '^n1# ls /run/vgpu$' <<<"$output" | grep -qx node || wrong "something is left on the node"
has '^vgpu: vgpu-run [0-9]+ on n1, GPU .*: peak 728MiB of 1GiB \(71 %\), 1 allocation refused'
has '^rank 0 on n[12] has its 100 MiB$'
has '^alone: rank 0 of 1$'

directory=$(sed -n 's/^its directory is \(.*\)\.$/\1/p' <<<"$output")
[[ $directory == /tmp/vdemo-* ]] || wrong "the shell is in '$directory'"
gone "${directory:-nowhere}"
! grep -q $'\033' <<<"$output" || wrong "there are escape sequences in a pipe"

# The README's transcript: its commands in the order of the demo, and what each said. Times were looked at above.
any_time() { sed 's/^\(1 s of GPU time in\) [0-9.]* s$/\1 ... s/'; }
readarray -t lines < <(any_time <<<"$output")
at=0
was_shown() { # HOST COMMAND EXPECTED
  local prompt='$' said=
  [ "$1" = ctl ] || prompt=$1#
  while [ $at -lt ${#lines[@]} ] && [ "${lines[at]}" != "$prompt $2" ]; do at=$((at + 1)); done
  [ $at -lt ${#lines[@]} ] || { wrong "README.md shows, and the demo does not, at least not there: $2" && return; }
  for ((at++; at < ${#lines[@]}; at++)); do
    case ${lines[at]} in '' | '$ '* | n[0-9]'# '*) break ;; esac
    said+=${lines[at]}$'\n'
  done
  matches "$3" "${said%$'\n'}" || wrong "README.md, $2: expected:"$'\n'"$3"$'\nbut the demo said:\n'"$said"
}
each_command was_shown < <(section 'What it looks like' "${demo%/*}/README.md" | any_time)
[ "$commands" -ge 8 ] || wrong "README.md shows only $commands commands"
[ $failures -eq 0 ]
