#!/bin/bash
# For /etc/enroot/hooks.d: mounts the regions of the user's jobs and the library into a container, under the same paths as
# on the host. pyxis starts containers before LD_PRELOAD and VGPU_REGION are set; they reach the container afterwards.
set -eu

# Change these if library= or region_dir= is set in plugstack.conf.d.
library=/usr/lib/slurm-vgpu/libvgpu.so
regions=/run/vgpu

mount_line() { # SOURCE TARGET dir|file OPTIONS
  # Recursively: `usage` is a mount of its own in the region.
  printf '%s %s none x-create=%s,rbind,nosuid,nodev,private,%s\n' "$1" "$2" "$3" "$4" >>"$ENROOT_MOUNTS"
}

[ -n "${SLURM_JOB_ID:-}" ] || exit 0
# By owner, not by SLURM_JOB_ID, which is that of the first component in a heterogeneous job.
found=
for region in "$regions"/[0-9]*; do
  [ -O "$region/usage" ] || continue
  mount_line "$region" "$region" dir rw,noexec
  found=yes
done
if [ -z "$found" ] && [ -e "$regions/$SLURM_JOB_ID/limits" ]; then
  echo "vgpu: $regions/$SLURM_JOB_ID/usage cannot be seen here; set usage_room=shared in plugstack.conf.d" >&2
  exit 1
fi
[ -n "$found" ] || exit 0

# Without it the dynamic linker would only warn, and the job would run without its limits.
if [ ! -e "$library" ]; then
  echo "vgpu: $library: there is no such file on this node; correct it in ${BASH_SOURCE[0]}" >&2
  exit 1
fi
mount_line "$library" "$library" file ro
[ ! -e "$regions/node" ] || mount_line "$regions/node" "$regions/node" file ro,noexec
# preload=ldso: the environment must have no influence in the container either.
if [ -e "$regions/ld.so.preload" ]; then
  mount_line "$regions/ld.so.preload" /etc/ld.so.preload file ro,noexec
  [ ! -O "$regions/$SLURM_JOB_ID/usage" ] || mount_line "$regions/$SLURM_JOB_ID" /run/vgpu/self dir rw,noexec
fi
