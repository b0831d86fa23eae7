#!/bin/bash
# vgpuctl on the nodes of a real cluster.
. "$(dirname "$0")/spank_lib.sh"
vgpuctl=$build/utils/vgpuctl/vgpuctl
[ -e "$vgpuctl" ] || { echo "skipped: vgpuctl was not built; CLI11 or nlohmann's JSON is missing" && exit 77; }

on_n1() { run "$lab" node "$work/lab" n1 -- "$@"; }
ctl() { on_n1 env "SLURM_CONF=$SLURM_CONF" "$vgpuctl" "$@"; }

# hold OPTION...: a job on n1 whose rank holds 1 GiB until it is cancelled; sets $job.
hold() {
  job=$(sbatch --parsable -o /dev/null -w n1 --gres=gpu:1 "$@" --wrap "exec $rank $gib 60")
  eventually holds || complain "job $job does not hold anything"
}
holds() { on n1 "$vgpuctl" list -n -P -o mem-used -j "$job" 2>/dev/null | grep -qx 1GiB; }

test_list_and_set() {
  configure
  hold --gpu-mem=2G
  ctl list -n -P -o jobid,user,gpu,mem-used,mem-limit,procs,state
  equal "the list" "$job|root|0|1GiB|2GiB|1|ok" "$output"
  ctl set "$job" --gpu-mem=1G
  status_is 0
  ctl list -n -P -o mem-limit,state
  equal "after set" "1GiB|at-limit" "$output"
  ctl set "$job" --gpu-mem=9G
  status_is 1
  output_has "has no more than 8GiB"
  ctl topo
  output_has "job $job  root  1GiB of 1GiB"
  scancel "$job"
}

test_report_after_the_job() {
  mkdir -p "$work/record" && configure record="$work/record/jobs.jsonl"
  hold --gpu-mem=2G
  ctl report "$job" --record "$work/record/jobs.jsonl"
  status_is 2
  ctl metrics --no-sm # as its timer does
  sleep 1
  ctl metrics --no-sm
  ctl set "$job" --gpu-mem=4G
  scancel "$job"
  eventually no_regions
  ctl report "$job" --record "$work/record/jobs.jsonl"
  status_is 0
  output_has "Job ID: $job"
  output_has "GPU Memory Peak: 1GiB"
  output_has "GPU Memory Average: 1GiB"
  output_has "GPU Memory Efficiency: 25.00% of 4GiB"
  output_has "GPU Memory Limit: 2GiB at first, 4GiB at the end"
  configure record=off
  hold --gpu-mem=2G
  scancel "$job"
  eventually no_regions
  equal "lines with record=off" 1 "$(wc -l <"$work/record/jobs.jsonl")"
  configure
}

test_gc_asks_slurmctld() {
  local allocation
  # A job that has a region and no process, and a region whose job nobody knows.
  allocation=$(sbatch --parsable -o /dev/null -w n1 --gres=gpu:1 --gpu-mem=1G --wrap 'sleep 60')
  eventually on n1 test -e "/run/vgpu/$allocation/limits"
  on n1 cp -a "/run/vgpu/$allocation" /run/vgpu/99999
  ctl gc --older-than=0s --dry-run
  status_is 4
  equal "what is stale" "stale /run/vgpu/99999" "$output"
  ctl gc --older-than=1h
  true_that "younger things stay" on n1 test -e /run/vgpu/99999
  on_n1 env PATH=/nonexistent "$vgpuctl" gc --older-than=0s
  status_is 1
  output_has "nothing is removed"
  true_that "in doubt it stays" on n1 test -e /run/vgpu/99999
  ctl gc --older-than=0s
  status_is 0
  true_that "it is gone" on n1 test ! -e /run/vgpu/99999
  true_that "the idle job keeps its region" on n1 test -e "/run/vgpu/$allocation/limits"
  scancel "$allocation"
}

# Its user wrote into it that a process lives, and its epilog never came: the limit must not stay promised.
test_a_forged_living_slot_keeps_no_promise() {
  hold --gpu-mem=2G
  on n1 cp -a "/run/vgpu/$job" /run/vgpu/99999
  ctl gc --older-than=0s
  status_is 0
  true_that "it is gone" on n1 test ! -e /run/vgpu/99999
  true_that "the job that runs keeps its own" on n1 test -e "/run/vgpu/$job/limits"
  scancel "$job"
}

# What users can do to the file in which their own job counts.
cat >lease.py <<'END'
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
usage = open(os.environ["VGPU_REGION"] + "/usage", "r+b")
fcntl.fcntl(usage, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open(sys.argv[1], "w")
time.sleep(600)
END
test_set_cannot_be_vetoed() {
  local way limit=1
  for way in 'chmod 666 $VGPU_REGION/usage' 'chmod 0 $VGPU_REGION/usage' ': >$VGPU_REGION/usage' 'truncate -s 1M $VGPU_REGION/usage' \
    "python3 $work/lease.py $work/signs/leased & until [ -e $work/signs/leased ]; do sleep 0.1; done"; do
    job=$($games sbatch --parsable -o /dev/null -w n1 --gres=gpu:1 --gpu-mem=8G --wrap "$way; $hold_on")
    true_that "the job runs" eventually is_there "$job"
    limit=$((limit + 1))
    ctl set "$job" --gpu-mem=${limit}G
    status_is 0
    ctl list -n -P -o mem-limit -j "$job"
    status_is 0
    output_has "${limit}GiB"
    ctl metrics --no-sm
    status_is 0
    output_has "vgpu_memory_limit_bytes{slurmjobid=\"$job\""
    scancel "$job"
    eventually has_gone "$job"
    rm -f signs/*
  done
}
is_there() { [ -e "signs/$1" ]; }
has_gone() { [ -z "$(squeue -h -j "$1" 2>/dev/null)" ]; }

test_check() {
  ctl check --library "$build/libvgpu/libvgpu.so"
  output_has "/plugstack.conf.d/lab.conf:1: required, overcommit=1"
  output_has "/run/vgpu: root's, mode 0755, tmpfs"
  output_has "$plugin: version "
  output_has "regions: 0, none stale"
}

start_lab
run_tests "$@"
