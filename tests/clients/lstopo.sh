#!/bin/sh
# lstopo's NVML plugin finds the devices. They have no real PCI device to hang below, so they are looked for by name. It
# prints no memory, so a limit is none of its business.
. "$(dirname "$0")/lib.sh"
need lstopo-no-graphics hwloc
find /usr/lib -name 'hwloc_nvml.so' 2>/dev/null | grep -q . || skip "install the Debian package libhwloc-contrib-plugins"
node
checks() {
  HWLOC_COMPONENTS=-opencl,-gl,-cuda timeout 60 lstopo-no-graphics --whole-io -v --of console >"$scratch/out" 2>&1
  cat "$scratch/out"
  expect "both devices are found" test "$(grep -c 'nvml[01]' "$scratch/out")" -ge 2
  expect "with their identity" grep -q 'GPU-516d6770-7500-4000-8000-000000000002' "$scratch/out"
}
both_ways checks
