#!/bin/bash
# Which GPU a job really has, when gres index, minor number and NVML's index all differ; with and without ConstrainDevices.
. "$(dirname "$0")/spank_lib.sh"

uuid() { echo "GPU-00000000-0000-4000-8000-00000000000$1"; }

# Minors are given in the order of the description (0, 1, 2), NVML counts by PCI (c, b, a), gres.conf says 2, 0, 1.
gpus="visibility_ms=0;idle_ms=100;reserved=0;device;uuid=$(uuid a);pci=0000:81:00.0;memory=4GiB;device;uuid=$(uuid b);pci=0000:41:00.0;memory=6GiB;device;uuid=$(uuid c);pci=0000:21:00.0;memory=8GiB"
in_order=(c a b)
site_options=hwloc_xml=$here/../vgpu-probe/topology.xml

found() { sed -n 's/.*uuid=\(\S*\) .*/\1/p' <<<"$output" | xargs; }

test_by_device_file() {
  run srun -Q -w n1 --gres=gpu:3 --gpu-mem=50% "$rank" --show
  equal "in gres.conf's order" "$(uuid c) $(uuid a) $(uuid b)" "$(found)"
  output_has "uuid=$(uuid c) pci=0000:21:00.0 limit=$((4 * gib)) "
  output_has "uuid=$(uuid a) pci=0000:81:00.0 limit=$((2 * gib)) "
  output_has "uuid=$(uuid b) pci=0000:41:00.0 limit=$((3 * gib)) "
}

test_one_after_the_other() {
  local i jobs=()
  for i in 0 1 2; do
    jobs+=("$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o "one.$i" --wrap="$rank --show; $hold_on")")
    eventually holds "${jobs[i]}"
  done
  for i in 0 1 2; do
    output=$(cat "one.$i")
    equal "job $i" "$(uuid "${in_order[i]}")" "$(found)"
  done
  let_go
}

test_list_in_the_order_of_the_job() {
  run srun -Q -w n1 --gres=gpu:3 --gpu-mem=3G,1G,2G "$rank" --show
  output_has "uuid=$(uuid c) pci=0000:21:00.0 limit=$((3 * gib)) "
  output_has "uuid=$(uuid a) pci=0000:81:00.0 limit=$gib "
  output_has "uuid=$(uuid b) pci=0000:41:00.0 limit=$((2 * gib)) "
}

test_locality_from_hwloc() {
  run srun -Q -w n1 --gres=gpu:3 --gpu-mem=1G "$rank" --show
  output_has "pci=0000:21:00.0 limit=$gib sm=100 used=0 peak=0 refused=0 numa=0 cpus=0-1"
  output_has "pci=0000:81:00.0 limit=$gib sm=100 used=0 peak=0 refused=0 numa=1 cpus=2-3"
  output_has "pci=0000:41:00.0 limit=$gib sm=100 used=0 peak=0 refused=0 numa=-1 cpus="
}

test_constrained_devices() {
  [ -d /sys/fs/cgroup/devices ] || { echo "there is no devices controller here; not seen" && return; }
  start_lab --gpus 3 --minors "2 0 1" --cgroup
  run srun -Q -w n1 --gres=gpu:3 --gpu-mem=50% "$rank" --show
  equal "in gres.conf's order" "$(uuid c) $(uuid a) $(uuid b)" "$(found)"
  # The file that the cgroup opens to the job is the GPU of its region.
  local i jobs=()
  for i in 0 1 2; do
    jobs+=("$(sbatch --parsable -w n1 --gres=gpu:1 --gpu-mem=1G -o "cg.$i" \
      --wrap="$rank --show; for m in 0 1 2; do python3 -c 'import os,sys; os.open(sys.argv[1], os.O_RDONLY)' /dev/nvidia\$m 2>&1 | grep -q 'Operation not permitted' || echo minor=\$m; done; $hold_on")")
    eventually holds "${jobs[i]}"
  done
  local minor=([0]=2 [1]=0 [2]=1)
  for i in 0 1 2; do
    output=$(cat "cg.$i")
    equal "job $i" "$(uuid "${in_order[i]}")" "$(found)"
    equal "its device file" "minor=${minor[i]}" "$(grep minor= "cg.$i" | xargs)"
  done
  let_go
}

start_lab --gpus 3 --minors "2 0 1"
run_tests "$@"
