# programs/runtime.cu, compiled by the nvcc in PATH: bare and in a job, with the runtime linked in and as a library.
limit_mib=2048

compile() { # NAME FLAGS...
  nvcc "${@:2}" -o "$work/$1" "$here/programs/runtime.cu" >"$work/nvcc" 2>&1 || { cat "$work/nvcc" && return 1; }
}

# checked TITLE COMMAND...: says whether it went well, and what it printed.
checks=0 bad=0
checked() {
  local text
  checks=$((checks + 1))
  if text=$("${@:2}" 2>&1); then printf '%-42s ok: %s\n' "$1" "$(paste -sd ',' <<<"$text" | sed 's/,/, /g')"; else
    bad=$((bad + 1))
    printf '%-42s failed:\n%s\n' "$1" "$(sed 's/^/   /' <<<"$text")"
  fi
}

saw_limit() {
  in_job --gpu-mem="${limit_mib}M" -- "$1" fill >"$work/out" 2>"$work/err" && grep -qx "total $limit_mib MiB" "$work/out" &&
    cat "$work/out" && return
  cat "$work/out" "$work/err"
  return 1
}

run_both() { # TITLE PROGRAM
  checked "$1" "$2"
  checked "$1, in a job of $limit_mib MiB" saw_limit "$2"
}

section_runtime() {
  have nvcc || not_run "nvcc is not in PATH" || return
  if [ -n "$simulated" ]; then
    rehearse || return
    not_run "NVIDIA's runtime refuses a simulated driver; with our small one $((checks - bad)) of $checks checks passed"
    return
  fi
  compile static -cudart static && run_both "static runtime" "$work/static"
  compile shared -cudart shared && LD_LIBRARY_PATH=$(toolkit_libraries):${LD_LIBRARY_PATH:-} run_both "shared runtime" "$work/shared"
  [ "$checks" -eq 4 ] || bad=$((bad + 1))
  conclude "nvcc $(nvcc --version | sed -n 's/.*release \([^,]*\),.*/\1/p'): $((checks - bad)) of $checks checks passed"
  [ "$bad" -eq 0 ]
}

toolkit_libraries() { dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")" | sed 's,$,/lib64,'; }

# The same program, linked with the small runtime of simgpu/, which is made for CUDA 13.
rehearse() {
  nvcc --version | grep -q 'release 13' || not_run "nvcc is not of CUDA 13, for which the small runtime is" || return
  local runtime=$build/simgpu/runtime
  compile rehearsed -arch=sm_80 --no-compress -cudart none -L"$runtime" -lcudart || return
  LD_LIBRARY_PATH=$runtime:$LD_LIBRARY_PATH run_both "our small runtime" "$work/rehearsed"
  [ "$bad" -eq 0 ]
}
