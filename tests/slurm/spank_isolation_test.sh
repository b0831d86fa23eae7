#!/bin/bash
# The library itself on the simulated GPU: limits that hold, preload=ldso against those who would get around it, the audit.
. "$(dirname "$0")/spank_lib.sh"
[ -e "$build/libvgpu/libvgpu.so" ] || { echo "skipped: libvgpu.so was not built" && exit 77; }
cp "$build/libvgpu/libvgpu.so" libvgpu.so
client=$work/client
cp "$build/simgpu/simgpu-client" "$client"
chmod 755 "$client" libvgpu.so

limited="-Q -w n1 --gres=gpu:1 --gpu-mem=1G"
# What the client sees of the GPU: a context, then free and total memory.
printf 'ctx 0\ninfo\n' >orders
sees="$client <$work/orders"
seen() { grep -q "$gib" <<<"$output"; }

test_a_limit_holds() {
  configure preload=env
  run srun $limited sh -c "$sees"
  true_that "the limit is seen: $output" seen
  printf 'ctx 0\nalloc %d\nalloc %d\n' $((512 << 20)) $((900 << 20)) >over
  run srun $limited sh -c "$client <$work/over"
  output_has "out of memory"
  output_has "--gpu-mem"
  output_has "1 allocation refused"
}

test_ranks_share_it() {
  configure preload=env
  printf 'ctx 0\nalloc %d\n' $((220 << 20)) >share
  # Each holds what it got until all four have their answers.
  run srun $limited -n4 sh -c "(cat $work/share; until [ \$(cat answer.* | wc -l) -eq 8 ]; do sleep 0.1; done) | $client >answer.\$SLURM_PROCID"
  equal "of four, refused by the limit" 1 "$(grep -c 'vgpu: job .* out of memory' <<<"$output")"
}

test_getting_around_the_environment() {
  # With preload=env that works, and the documentation says so; if it did not, the rest of this test would show nothing.
  configure preload=env
  run srun $limited sh -c "unset LD_PRELOAD; $sees"
  true_that "unset gets around preload=env" test -z "$(grep "$gib" <<<"$output")"

  configure preload=ldso
  printf '#!/bin/sh\necho unset LD_PRELOAD\necho unset VGPU_REGION\n' >task_prolog
  chmod 755 task_prolog
  local way
  for way in "$sees" "unset LD_PRELOAD VGPU_REGION; $sees" "env -i $sees" "env -u LD_PRELOAD $sees" "VGPU_REGION=/nowhere $sees" \
    "LD_PRELOAD= VGPU_REGION= $sees" "bash -c 'unset LD_PRELOAD; $sees'"; do
    run srun $limited sh -c "$way"
    true_that "the limit is seen by: $way: $output" seen
  done
  run srun $limited --task-prolog="$work/task_prolog" sh -c "$sees"
  true_that "the limit is seen behind a task prolog: $output" seen
  run $games srun $limited sh -c "env -i $sees"
  true_that "the limit is seen by another user: $output" seen
  run_batch -w n1 --gres=gpu:1 --gpu-mem=1G -o out --wrap="unset LD_PRELOAD; $sees; srun env -i $sees"
  output=$(cat out)
  equal "in a batch script and its step" 2 "$(grep -c "$gib" out)"
}

# Failing open is for what went wrong on the node, not for what a user did to the file in which he counts.
test_failing_open_is_not_for_users() {
  configure fail=open preload=ldso
  on n1 rm -f /run/vgpu/node  # made anew, with the site's choice
  local way
  for way in 'chmod 0 $VGPU_REGION/usage' ': >$VGPU_REGION/usage' 'chmod 666 $VGPU_REGION/usage' 'ulimit -n 4'; do
    run $games srun $limited sh -c "$way; $sees"
    output_lacks "8589934592"
    output_lacks "without limits"
  done
  configure
  on n1 rm -f /run/vgpu/node
  run srun $limited true
}

test_the_private_namespace() {
  configure preload=ldso
  run $games srun $limited sh -c 'ls /run/vgpu; cat /etc/ld.so.preload; (echo x >/etc/ld.so.preload) 2>&1; (: >/run/vgpu/x) 2>&1; umount /run/vgpu 2>&1; ls -id $VGPU_REGION/limits /run/vgpu/self/limits | awk "{print \$1}" | uniq | wc -l'
  output_has "$library"
  output_has self
  equal "what a user can write or unmount" 3 "$(grep -c 'Read-only\|superuser' <<<"$output")"
  equal "the region at both places is one" 1 "$(tail -n 1 <<<"$output")"
  # A step sees its own job alone.
  local job
  job=$(sbatch --parsable -w n1 --gres=shard:1 --gpu-mem=1G -o /dev/null --wrap="sleep 30")
  eventually has_region "$job"
  run srun -Q -w n1 --gres=shard:1 --gpu-mem=1G ls /run/vgpu
  output_lacks "$job"
  scancel "$job"
  equal "on the node" "" "$(on n1 cat /etc/ld.so.preload)"
  true_that "nothing is bound on the node" on n1 sh -c '! grep -q ld.so.preload /proc/mounts && [ ! -e /run/vgpu/self ]'
  # What the site preloads itself stays.
  on n1 sh -c "echo $work/site.so >/etc/ld.so.preload" && cp libvgpu.so site.so
  run srun $limited cat /etc/ld.so.preload
  equal "with the site's own" "$library:$work/site.so" "$output"
  on n1 sh -c ': >/etc/ld.so.preload'
}
holds_memory() { [ "$(grep -cs '^0' other)" = 2 ]; }
has_region() { regions n1 | grep -qx "$1"; }

# The first of three ranks runs without the library and holds memory. Once it does, the second one ends, and is the occasion
# to look. Slurm's daemon reaps the third one, which ends next, only when it has looked: then the first may end, too.
cat >cheat.sh <<'END'
gone() { [ -s signs/rank.$1 ] && [ ! -e /proc/$(cat signs/rank.$1) ]; }
until_so() { until "$@"; do sleep 0.05; done; }
holding() { [ "$(grep -cs '^0' signs/answers)" = 2 ]; }
echo $$ >signs/new.$SLURM_PROCID && mv signs/new.$SLURM_PROCID signs/rank.$SLURM_PROCID
case $SLURM_PROCID in
  0)
    (printf 'ctx 0\nalloc 209715200\n'; until_so gone 2) | "$@" >signs/answers
    echo cheat $?
    ;;
  1) until_so holding ;;
  2) until_so gone 1 ;;
esac
END
cheat() { # COMMAND...: the first rank's program
  rm -f signs/*
  run srun $limited -n3 --overcommit sh cheat.sh "$@"
}

test_audit_names_a_process_that_nobody_counts() {
  configure audit=log
  cheat env -u LD_PRELOAD "$client"
  output_has "vgpu: audit: process"
  output_has "(client) of job"
  output_has "nobody counts"
  output_has "cheat 0"
  cheat "$client"
  output_has "cheat 0"
  output_lacks audit
  configure audit=off
  cheat env -u LD_PRELOAD "$client"
  output_has "cheat 0"
  output_lacks audit
}

# A name is its owner's to choose, and the log is the administrator's to read.
test_names_give_no_orders_to_a_terminal() {
  local name=$'cl\e[2J\nt'
  cp "$client" "$name"
  configure audit=log
  cheat env -u LD_PRELOAD "$work/$name"
  output_has "(cl?[2J?t) of job"
  output_lacks $'\e'
  true_that "nor in the log" [ "$(slurmd_log n1 | grep -c $'\e')" = 0 ]
}

test_audit_kills_it() {
  configure audit=kill
  cheat env -u LD_PRELOAD "$client"
  output_has "it was killed"
  output_lacks "cheat 0"
}

test_audit_leaves_other_jobs_alone() {
  configure audit=kill
  local job
  job=$(sbatch --parsable -w n1 --gres=shard:1 -o other \
    --wrap="(printf 'ctx 0\nalloc 209715200\n'; $hold_on) | $client; echo ended \$?")
  true_that "the other job holds memory" eventually holds_memory
  run srun -Q -w n1 --gres=shard:1 --gpu-mem=1G sh -c "$sees"
  output_lacks audit
  let_go
  eventually grep -qs ended other
  true_that "it ended by itself: $(cat other)" grep -q "ended 0" other
}

start_lab
run_tests "$@"
