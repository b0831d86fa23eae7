# What people run, if it is installed: bare and in a job. VGPU_PYTHON names another python3, VGPU_LLAMA_MODEL a model for llama.cpp.
python=${VGPU_PYTHON:-python3}
limit_mib=3072
seen=() absent=() bad=()

has_module() { have "$python" && "$python" -c "import $1" >/dev/null 2>&1; }

# try NAME COMMAND...: bare, then in a job whose limit it must see (LIMIT_MIB in its environment).
try() {
  local name=$1 status=0
  seen+=("$name")
  part "$name, bare" timeout 150 "${@:2}" || status=1
  part "$name, in a job of $limit_mib MiB" env LIMIT_MIB=$limit_mib timeout 150 env XDG_RUNTIME_DIR="$work" \
    "$build/utils/vgpu-run/vgpu-run" --gpu-mem=${limit_mib}M -- "${@:2}" || status=1
  [ $status -eq 0 ] || bad+=("$name")
}

llama_bench() {
  if [ -n "${VGPU_LLAMA_MODEL:-}" ]; then llama-bench -m "$VGPU_LLAMA_MODEL" -p 64 -n 16 -r 1 -ngl 99; else
    echo "devices only; VGPU_LLAMA_MODEL names no model"
    llama-bench --list-devices
  fi
}

section_applications() {
  [ -z "$simulated" ] || not_run "they come with NVIDIA's runtime, which refuses a simulated driver" || return
  if has_module torch; then try PyTorch "$python" "$here/programs/torch_check.py"; else absent+=(PyTorch); fi
  if has_module jax; then try JAX "$python" "$here/programs/jax_check.py"; else absent+=(JAX); fi
  export -f llama_bench
  if have llama-bench; then try llama.cpp bash -c llama_bench; else absent+=(llama.cpp); fi
  [ ${#seen[@]} -gt 0 ] || not_run "not installed: ${absent[*]}" || return
  conclude "${seen[*]}: ${#bad[@]} failed${bad:+ (${bad[*]})}${absent:+; not installed: ${absent[*]}}"
  [ ${#bad[@]} -eq 0 ]
}
