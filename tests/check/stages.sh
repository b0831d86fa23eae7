# Of check.sh: the stages. A stage is a function stage_NAME. It returns 0 (passed), 77 (skipped, `note` says why) or anything
# else (failed), and may count single tests in `passed`, `failed` and `skipped`; a stage that counts nothing counts as one.
# Sourced; stage_packages is in packages.sh.

stage_demo() { configure_release && make_in "$build_dir" demo; }

stage_build() { configure_release && make_tests_in "$build_dir"; }

stage_release() {
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-$([ "$level" = quick ] && echo 10 || echo 60)} VGPU_CHECK_LEVEL=$level
  stage_build || return
  run_tests_in "$build_dir" check chosen_tests || return
  [ "$level" != quick ] || note="$(grep -c '^tests' tests/long.txt) long tests run only with --all"
}

stage_format() {
  local bad
  have clang-format || skip "clang-format is missing; install clang-format" || return
  find . -path ./build -prune -o \( -name '*.cc' -o -name '*.h' \) -type f -print0 | sort -z |
    xargs -0 -n 20 -P "$(nproc)" clang-format --dry-run --Werror >>"$log" 2>&1 && return
  bad=$(sed -n 's,^\./\([^:]*\):.*: error: .*,\1,p' "$log" | sort -u)
  printf 'to do: clang-format -i %s\n' "${bad//$'\n'/ }"
  return 1
}

stage_model() {
  have spin || skip "spin is missing; install spin" || return
  configure_release || return
  counted '^(ok|FAIL) ' make -C "$build_dir" --no-print-directory check-model MODEL_FLAGS="${soak:+--long}"
}

stage_asan() {
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-10}
  local directory=$build_dir/asan
  configure_in "$directory" --enable-werror --enable-asan --enable-ubsan CXXFLAGS="-O1 -g" &&
    make_in "$directory" build-gtest && run_tests_in "$directory" check-gtest gtest_programs
}

stage_tsan() {
  # The driver is not what is looked at, so the one of the release build will do.
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-10} SIMGPU_BUILD=$build_dir/simgpu
  # ThreadSanitizer of gcc 12 cannot place its shadow when the kernel randomises with more than 28 bits.
  local directory=$build_dir/tsan fixed_addresses=()
  setarch -R true 2>/dev/null && fixed_addresses=(setarch -R)
  configure_release && make_in "$build_dir" simgpu &&
    configure_in "$directory" --enable-werror --enable-tsan CXXFLAGS="-O1 -g" && make_in "$directory" build-tsan || return
  run_tests_in "$directory" check-tsan tsan_tests "${fixed_addresses[@]}"
}

aarch64_emulator() { command -v qemu-aarch64 || command -v qemu-aarch64-static; }

stage_aarch64() {
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-5}
  local directory=$build_dir/aarch64
  have aarch64-linux-gnu-g++ || skip "the cross compiler is missing; install g++-aarch64-linux-gnu" || return
  aarch64_emulator >/dev/null || skip "qemu-aarch64 is missing; install qemu-user" || return
  configure_in "$directory" --enable-werror --host=aarch64-linux-gnu CXXFLAGS=-O2 \
    EMULATOR="$(aarch64_emulator) -L /usr/aarch64-linux-gnu" || return
  refuses_other_architectures || return
  passed=1
  make_in "$directory" all && make_in "$directory" build-portable && run_tests_in "$directory" check-portable portable_tests || return
  echo '   and with pages of 64 KiB, the largest that an ARM kernel has:'
  local -x QEMU_PAGESIZE=65536
  run_tests_in "$directory" check-pages page_tests
}

refuses_other_architectures() {
  local directory=$TMPDIR/other-architecture output
  mkdir -p "$directory"
  output=$(cd "$directory" && "$source_dir/configure" --host=riscv64-linux-gnu 2>&1)
  [[ $output != *'error: the CPU architecture "riscv64" is not supported; '* ]] || return 0
  printf 'configure does not refuse riscv64 by name:\n%s\n' "$(tail -n 5 <<<"$output")"
  return 1
}

stage_clang() {
  have clang++ || skip "clang++ is missing; install clang" || return
  configure_in "$build_dir/clang" --enable-werror CXX=clang++ CXXFLAGS=-O0 && make_tests_in "$build_dir/clang"
}

stage_mutants() { counted '^(ok|FAIL) ' tests/mutants/run.sh; }

# The tests were built and run before: here the archive must only configure, build, install, uninstall and clean up, and
# hold all that git tracks. A plain `make distcheck` runs its tests as well.
stage_dist() {
  configure_release || return
  measured distcheck '^  [A-Z]+ +' 2 0 make -C "$build_dir" -j"$(nproc)" --no-print-directory distcheck \
    DISTCHECK_CONFIGURE_FLAGS="$(header_options | xargs)" TESTS= check_PROGRAMS= check_LIBRARIES= check_DATA= || return
  archive_is_complete
}

archive_is_complete() {
  have git && git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1 || return 0
  local archive forgotten
  archive=$(make -s -C "$build_dir" --no-print-directory print NAME=distdir).tar.gz || return
  forgotten=$(comm -23 <(git -c safe.directory='*' ls-files | grep -v '^\.gitignore$' | sort) \
    <(tar tzf "$build_dir/$archive" | sed 's,^[^/]*/,,' | sort))
  [ -n "$forgotten" ] || return 0
  printf 'not in %s; add it to EXTRA_DIST:\n%s\n' "$archive" "$forgotten"
  return 1
}

# Only on request: a machine's own GPU is not ours to use unasked.
stage_gpu() {
  have nvidia-smi && nvidia-smi -L >>"$log" 2>&1 || skip "this machine has no NVIDIA GPU with a working driver" || return
  stage_build || return
  [ -x "$build_dir/tests/gpu/gpu_tables" ] || skip "gpu_tables is not built; it needs the headers of CUDA 13 and NVML" || return
  local status=0
  with_progress sections measure_gpu_sections logged tests/gpu/protocol.sh --build "$build_dir" --out "$build_dir" || status=$?
  show_gpu_report
  return "$status"
}

# protocol.sh says "section NAME, ..." when one begins.
measure_gpu_sections() {
  awk -v total="$(grep -c '^[^#]' tests/gpu/sections/sections.txt)" '
    /^section / { now = $2; sub(/,$/, "", now); begun++ }
    END         { print (begun > 0 ? begun - 1 : 0), total, now }' "$log"
}

show_gpu_report() {
  local report counts='([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$'
  report=$(sed -n 's/^the report is //p' "$log" | tail -n 1)
  [ -n "$report" ] || { show_log && return; }
  [[ $(tail -n 1 "$log") =~ $counts ]] && passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]} skipped=${BASH_REMATCH[4]:-0}
  sed -n '/^section  *result/,/^$/s/^/   /p' "$report"
  note="please read ${report#"$source_dir"/} and send it to us"
}
