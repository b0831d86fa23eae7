# Of take, insist and compute: a process with a CUDA context, that makes the calls it is told. Any CUDA program would do. Sourced.
[ -z "${DEMO_DRIVER:-}" ] || export LD_LIBRARY_PATH=$DEMO_DRIVER # the machine's own; the nodes' loader knows a simulated one
who="rank ${SLURM_PROCID:-${VGPU_RANK:-0}} on $(hostname)"
coproc gpu { exec simgpu-client; }

# ask CALL: fails if CUDA did. The answer begins with CUDA's error, 0 for none.
ask() {
  echo "$1" >&"${gpu[1]}" && read -r answer <&"${gpu[0]}"
  [[ $answer == 0* ]]
}

# allocate MIB: says what came of it.
allocate() {
  if ask "alloc $(($1 << 20))"; then
    echo "$who has its $1 MiB"
  else
    echo "$who got no $1 MiB: CUDA error ${answer%% *}"
    return 1
  fi
}

ask 'ctx 0'
