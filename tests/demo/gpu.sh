# Of demo.sh: which GPU the nodes have, the machine's own or a simulated one. Sourced; needs $build.
#
# choose_gpu [simulated]   sets
#   $gpu           in words
#   $unit          an eighth of what can be had of its memory, in whole GiB: the story's sizes are multiples of it
#   $gpu_options   of lab.sh
#   $plugin_keys   of plugstack.conf
#   $DEMO_DRIVER   where programs find libcuda.so.1; empty if the nodes' loader knows

choose_gpu() {
  export DEMO_DRIVER=
  if [ "${1:-}" != simulated ] && own_driver; then
    gpu="this machine's GPU of $((8 * unit)) GiB for both"
    DEMO_DRIVER=${cuda%/*}
    gpu_options=(--own-gpus --minors "$minor")
    plugin_keys="nvml=$nvml"
  else
    gpu="a simulated GPU of 8 GiB each"
    unit=1
    gpu_options=(--simgpu "$build/simgpu" --simgpu-config 'memory=8GiB;reserved=0;context=64MiB;visibility_ms=0;idle_ms=100;device')
    plugin_keys=context=64M
  fi
}

# Both libraries can be loaded, and NVML tells of a GPU that is large enough: contexts of real drivers are no small part of less.
own_driver() {
  local device bytes
  cuda=$(loaded libcuda.so.1) && nvml=$(loaded libnvidia-ml.so.1) || return
  device=$("$build/utils/vgpu-probe/vgpu-probe" 2>/dev/null | grep -m 1 '^device .* minor=[0-9]') || return
  minor=$(sed 's/.* minor=\([0-9]*\) .*/\1/' <<<"$device")
  bytes=$(sed 's/.* usable=\([0-9]\+\) .*/\1/; s/.* memory=\([0-9]*\) .*/\1/' <<<"$device")
  unit=$((bytes >> 33))
  [ "$unit" -ge 1 ]
}

# loaded NAME: the file that the loader finds for a library.
loaded() { LD_PRELOAD=$1 LD_TRACE_LOADED_OBJECTS=1 /bin/true 2>/dev/null | sed -n "s,^[[:space:]]*$1 => \(/[^ ]*\) .*,\1,p" | grep .; }
