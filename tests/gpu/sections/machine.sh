# The machine, as far as it can matter: no names.
line() { printf '%-22s %s\n' "$1" "$2"; }

container() {
  if [ -e /.dockerenv ]; then echo Docker; elif [ -e /run/.containerenv ]; then echo Podman; elif [ -n "${APPTAINER_NAME:-}" ]; then
    echo Apptainer
  elif have systemd-detect-virt && systemd-detect-virt -cq; then systemd-detect-virt -c; else
    echo none
  fi
}

mps() {
  if pgrep -x nvidia-cuda-mps >/dev/null 2>&1; then echo "its daemon runs"; else echo "no daemon seen"; fi
  [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || echo "; CUDA_MPS_PIPE_DIRECTORY is set"
}

section_machine() {
  line kernel "$(uname -sr), $(uname -m)"
  line "C library" "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
  line system "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null)"
  line processors "$(nproc)"
  line container "$(container)"
  line "PID namespaces" "$(sed -n 's/^NSpid:[[:space:]]*//p' /proc/self/status | wc -w)"
  line "control groups" "$(stat -fc %T /sys/fs/cgroup 2>/dev/null)"
  line "kernel module" "$(head -n 1 /proc/driver/nvidia/version 2>/dev/null || echo 'not seen')"
  line MPS "$(mps | paste -sd ' ')"
  line "CUDA_* variables" "$(env | sed -n 's/^\(CUDA_[A-Z_]*\)=.*/\1/p' | paste -sd ' ')"
  line nvcc "$(have nvcc && nvcc --version | sed -n 's/.*release \([^,]*\),.*/\1/p' || echo 'not in PATH')"
  "$tables" machine
}
