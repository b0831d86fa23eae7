#!/bin/bash
# Builds everything in build/ and runs every test. See --help.
#
# A stage is a function stage_NAME and a line in `stages`. It returns 0 (passed), 77 (skipped, `note` says why) or
# anything else (failed), and may count single tests in `passed`, `failed` and `skipped`; a stage that counts nothing
# counts as one. Commands run through `quietly` leave their output in build/log/STAGE.log, shown when they fail.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
source_dir=$PWD
build_dir=$source_dir/build
log_dir=$build_dir/log

stages=(
  "packages: what the build and the tests need is installed"
  "release:  release build, all tests"
  "asan:     all tests under AddressSanitizer and UndefinedBehaviorSanitizer"
  "tsan:     the thread tests under ThreadSanitizer"
  "aarch64:  the tests in an emulator for ARM, and again with pages of 64 KiB"
  "clang:    everything compiles with clang++, without a warning"
  "model:    the model of the accounting protocol, checked by spin"
  "mutants:  every mutation of the protocol's code breaks a test"
  "dist:     make distcheck; the archive is complete"
  "format:   clang-format finds nothing to change"
)
packages=(autoconf automake make g++ clang clang-format dpkg-dev libcli11-dev libgtest-dev libhwloc-dev libncurses-dev libslurm-dev
  nlohmann-json3-dev python3 spin lua5.1 munge openmpi-bin slurm-client slurm-wlm-basic-plugins slurmctld slurmd)
# For the build for ARM, for the simulated GPU and the programs that are run on it, for MPI ranks started by srun; what
# cannot be had is skipped.
optional_packages=(g++-aarch64-linux-gnu qemu-user libnvidia-ml-dev libjemalloc2 libtcmalloc-minimal4 libpmix-dev
  prometheus python3-jsonschema python3-pip rpm strace tmux $(sed -n 's/^\([a-z].*\) .*/\1/p' tests/clients/packages.txt))

usage() {
  cat <<'END'
usage: ./check.sh [--build | --soak | --mutants | --gpu | --only STAGE[,STAGE...]]

Builds out of tree in build/ and runs every test. As root on Debian it first installs the packages that are missing;
as anybody else it skips, and says so, what it cannot do. The last line counts: "N passed, M failed".

  --build         only install what is missing, and build
  --soak          also the long runs
  --mutants       only see that every mutation of the protocol's code breaks a test
  --gpu           only what can be shown on the GPU of this machine
  --only STAGES   only these stages
  --help          this text

stages:
END
  printf '  %s\n' "${stages[@]}"
}

# ---- helpers --------------------------------------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

quietly() {
  printf '+ %s\n' "$*" >>"$log"
  "$@" >>"$log" 2>&1 </dev/null && return
  local status=$?
  printf 'failed (status %s): %.200s\n' "$status" "$*"
  show_log
  return "$status"
}

show_log() {
  printf '  the end of %s:\n' "${log#"$source_dir"/}"
  tail -n 60 "$log" | cut -c 1-400 | sed 's/^/  | /'
}

skip() {
  note=$1
  return 77
}

# Like quietly, for a command that ends with "N passed, M failed": the stage counts what it counted.
counted() {
  local status=0 pattern='([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$'
  quietly "$@" || status=$?
  if [[ $(grep -E "$pattern" "$log" | tail -n 1) =~ $pattern ]]; then
    passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]} skipped=${BASH_REMATCH[4]:-0}
  fi
  return "$status"
}

parallel_make() { quietly make -j"$(nproc)" --no-print-directory "$@"; }

generate_configure() {
  if [ -e configure ] && [ -z "$(find configure.ac Makefile.am m4 libvgpu node spank etc utils simgpu tests \
    \( -name configure.ac -o -name Makefile.am -o -name '*.m4' -o -name '*.inc' \) -newer configure -print -quit)" ]; then
    return
  fi
  quietly autoreconf -fi
}

# configure_in DIRECTORY ARGUMENT...: configures unless that was done before, with the same arguments.
configure_in() {
  local directory=$1 wanted="${*:2}"
  generate_configure || return
  [ -e "$directory/Makefile" ] && [ "$(cat "$directory/configured-with" 2>/dev/null)" = "$wanted" ] && return
  mkdir -p "$directory" || return
  [ ! -e "$directory/Makefile" ] || quietly make -C "$directory" clean || return
  (cd "$directory" && quietly "$source_dir/configure" "${@:2}") || return
  printf '%s\n' "$wanted" >"$directory/configured-with"
}

# With the directories of a package, so that this build can be made one without compiling it again; see debian/rules.
configure_release() {
  configure_in "$build_dir" --enable-werror --prefix=/usr --libdir=/usr/lib --libexecdir=/usr/libexec --sysconfdir=/etc
}

build_tests_in() { parallel_make -C "$1" all && parallel_make -C "$1" check TESTS=; }

# Tests leave most of the machine idle. Meanwhile, at the lowest priority, what later stages will build is built: as far
# as it comes until the next stage begins, which goes on from there and reports what does not compile.
ahead=
build_ahead() {
  [ -z "$ahead" ] || return 0
  set -m  # a process group of its own
  (
    log=$log_dir/ahead.log
    renice -n 19 -p "$BASHPID"
    for name in "${later[@]}"; do ! declare -F "build_$name" || "build_$name"; done
  ) >"$log_dir/ahead.log" 2>&1 </dev/null &
  ahead=$!
  set +m
}

stop_building_ahead() {
  [ -n "$ahead" ] || return 0
  kill -- "-$ahead" 2>/dev/null
  wait "$ahead" 2>/dev/null
  ahead=
}

# run_tests_in DIRECTORY TARGET [COMMAND...]: one test program at a time, because some of them measure time.
run_tests_in() {
  local directory=$1 target=$2 status=0
  build_ahead
  find "$directory/tests" -name '*.trs' -delete
  printf '+ make %s\n' "$target" >>"$log"
  "${@:3}" make -C "$directory" --no-print-directory "$target" TEST_TIMEOUT="$test_timeout" >>"$log" 2>&1 </dev/null ||
    status=$?
  count_tests_in "$directory"
  if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
    printf 'failed (status %s): make %s\n' "$status" "$target"
    show_log
  fi
  return "$status"
}

# Reads what the test programs wrote: counts, says what was skipped and why, shows what failed.
count_tests_in() {
  local result output counts ok bad left
  while read -r result; do
    output=${result%.trs}.log
    counts=$(awk '
      /^\[ RUN      \] /            { running = 1; reason = "no reason given" }
      wanted                        { reason = $0; wanted = 0 }
      /: Skipped$/                  { wanted = 1 }
      /^\[       OK \] .* ms\)$/    { ok++; running = 0 }
      /^\[  FAILED  \] .* ms\)$/    { bad++; running = 0 }
      /^\[  SKIPPED \] .* ms\)$/    { left++; running = 0; print "  skipped: " $4 ": " reason >"/dev/stderr" }
      END                           { print ok + 0, bad + running, left + 0 }' "$output" 2>&3)
    read -r ok bad left <<<"$counts"
    case $(sed -n 's/^:test-result: *//p' "$result") in
      PASS*) [ $((ok + bad + left)) -gt 0 ] || ok=1 ;;
      SKIP*)
        [ $((ok + bad + left)) -gt 0 ] ||
          { left=1 && printf '  skipped: %s: %s\n' "$(basename "$output" .log)" "$(grep '^skipped: ' "$output" | tail -n 1 | cut -c 10-)"; }
        ;;
      *)
        [ "$bad" -gt 0 ] || bad=1
        show_failures "$output"
        ;;
    esac
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
  done 3>&1 < <(find "$1/tests" -name '*.trs' | sort)
}

# The output of the tests that failed or never ended. When that is nothing, because the program is no GoogleTest or a
# sanitizer complained at its end, all of it.
show_failures() {
  printf 'failed: %s\n' "${1#"$source_dir"/}"
  awk '
                                         { all = all $0 "\n" }
    /^\[ RUN      \] /                   { block = ""; inside = 1 }
    inside                               { block = block $0 "\n" }
    /^\[  (     OK|SKIPPED) \] .* ms\)$/ { inside = 0 }
    /^\[  FAILED  \] .* ms\)$/           { bad = bad block; inside = 0 }
    END                                  { if (inside) bad = bad block; printf "%s", bad != "" ? bad : all }' "$1" |
    tail -n 200 | sed 's/^/  | /'
}

# ---- stages ---------------------------------------------------------------------------------------------------------

stage_packages() {
  install_packages
  local status=$?
  fetch_old_headers || note+="${note:+, }the headers of CUDA 11.8 cannot be had"
  return "$status"
}

install_packages() {
  have dpkg-query || skip "this is not Debian; needed are: ${packages[*]} ${optional_packages[*]}" || return
  local missing optional
  read -ra missing < <(not_installed "${packages[@]}")
  read -ra optional < <(not_installed "${optional_packages[@]}")
  [ $((${#missing[@]} + ${#optional[@]})) -gt 0 ] || return 0
  [ "$(id -u)" -eq 0 ] || skip "only root can install: ${missing[*]} ${optional[*]}" || return
  export DEBIAN_FRONTEND=noninteractive
  quietly apt-get update || return
  [ ${#missing[@]} -eq 0 ] || quietly without_daemons apt-get install -y --no-install-recommends "${missing[@]}" || return
  [ ${#optional[@]} -gt 0 ] || return 0
  private_apt update >>"$log" 2>&1
  local package
  for package in "${optional[@]}"; do
    private_apt install -y --no-install-recommends "$package" >>"$log" 2>&1 || note+="${note:+, }cannot be had: $package"
  done
}

# Some packages hold daemons. None is started: nobody asked this machine to be a cluster.
without_daemons() {
  local policy=/usr/sbin/policy-rc.d status
  if [ -e "$policy" ]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || return
  "$@"
  status=$?
  rm -f "$policy"
  return "$status"
}

not_installed() {
  local package missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  echo "${missing[*]}"
}

# apt-get with contrib and non-free, through a source list and caches of our own: the machine's stay as they are.
private_apt() {
  local directory=$build_dir/apt keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$directory/lists/partial"
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Component: main' | sort -u |
    sed "s|.*|deb $([ ! -e $keyring ] || echo "[signed-by=$keyring]") & main contrib non-free|" >"$directory/sources.list"
  apt-get -o Dir::Etc::SourceList="$directory/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$directory/lists" "$@" </dev/null
}

# The headers of an older toolkit, with which libvgpu.so must come out the same.
fetch_old_headers() {
  local directory=$build_dir/cuda-11.8
  [ ! -e "$directory/include/cuda.h" ] || return 0
  rm -rf "$directory.part" && mkdir -p "$directory.part" || return
  (cd "$directory.part" &&
    timeout 60 python3 -m pip download --quiet --no-deps --disable-pip-version-check nvidia-cuda-runtime-cu11==11.8.89 &&
    python3 -m zipfile -e ./*.whl . && mv nvidia/cuda_runtime/include . && rm -rf nvidia* ./*.whl) >>"$log" 2>&1 &&
    mv "$directory.part" "$directory"
}

stage_build() {
  configure_release && build_tests_in "$build_dir"
}

stage_release() {
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-60}
  stage_build || return
  grep -q 'HAVE_SIMGPU_TRUE"\]=""' "$build_dir/config.status" ||
    note="without the simulated GPU: $(sed -n "s/^vgpu_summary_simgpu='*\\(.*[^']\\)'*$/\\1/p" "$build_dir/config.log")"
  run_tests_in "$build_dir" check
}

build_asan() {
  configure_in "$build_dir/asan" --enable-werror --enable-asan --enable-ubsan CXXFLAGS="-O1 -g" &&
    parallel_make -C "$build_dir/asan" build-gtest
}

stage_asan() {
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-10}
  build_asan && run_tests_in "$build_dir/asan" check-gtest
}

build_tsan() {
  # The driver is not what is looked at, so the one of the release build will do.
  local -x SIMGPU_BUILD=$build_dir/simgpu
  configure_in "$build_dir/tsan" --enable-werror --enable-tsan CXXFLAGS="-O1 -g" &&
    parallel_make -C "$build_dir/tsan" build-tsan
}

stage_tsan() {
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-10}
  # ThreadSanitizer of gcc 12 cannot place its shadow when the kernel randomises with more than 28 bits.
  local fixed_addresses=()
  setarch -R true 2>/dev/null && fixed_addresses=(setarch -R)
  configure_release && parallel_make -C "$build_dir" build-simgpu || return
  local -x SIMGPU_BUILD=$build_dir/simgpu
  build_tsan || return
  run_tests_in "$build_dir/tsan" check-tsan "${fixed_addresses[@]}"
  local status=$?
  [ "$status" -ne 0 ] || [ $((passed + failed + skipped)) -gt 0 ] || skip "there is no thread test yet" || return
  return "$status"
}

refuses_other_architectures() {
  local directory=$TMPDIR/other-architecture output
  mkdir -p "$directory"
  output=$(cd "$directory" && "$source_dir/configure" --host=riscv64-linux-gnu 2>&1)
  [[ $output != *'error: the CPU architecture "riscv64" is not supported; '* ]] || return 0
  printf 'configure does not refuse riscv64 by name:\n%s\n' "$(tail -n 5 <<<"$output")"
  return 1
}

aarch64_emulator() { command -v qemu-aarch64 || command -v qemu-aarch64-static; }

configure_aarch64() {
  configure_in "$build_dir/aarch64" --enable-werror --host=aarch64-linux-gnu CXXFLAGS=-O2 \
    EMULATOR="$(aarch64_emulator) -L /usr/aarch64-linux-gnu"
}

build_aarch64() {
  have aarch64-linux-gnu-g++ && aarch64_emulator >/dev/null && configure_aarch64 &&
    parallel_make -C "$build_dir/aarch64" all build-portable
}

stage_aarch64() {
  local -x VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-5}
  local directory=$build_dir/aarch64
  have aarch64-linux-gnu-g++ || skip "the cross compiler is missing; install g++-aarch64-linux-gnu" || return
  aarch64_emulator >/dev/null || skip "qemu-aarch64 is missing; install qemu-user" || return
  configure_aarch64 || return
  grep -q 'HAVE_GTEST_TRUE"\]=""' "$directory/config.status" ||
    skip "GoogleTest's source is missing; install googletest" || return
  refuses_other_architectures || return
  passed=1
  build_aarch64 && run_tests_in "$directory" check-portable || return
  echo '   and with pages of 64 KiB, the largest that an ARM kernel has:'
  local -x QEMU_PAGESIZE=65536
  run_tests_in "$directory" check-pages
}

build_clang() {
  have clang++ && configure_in "$build_dir/clang" --enable-werror CXX=clang++ CXXFLAGS=-O0 && build_tests_in "$build_dir/clang"
}

stage_clang() {
  have clang++ || skip "clang++ is missing; install clang" || return
  build_clang
}

stage_model() {
  have spin || skip "spin is missing; install spin" || return
  configure_release || return
  grep -q '^check-model:' "$build_dir/Makefile" || skip "there is no model yet" || return
  counted make -C "$build_dir" --no-print-directory check-model MODEL_FLAGS="${soak:+--long}"
}

stage_mutants() {
  [ -x tests/mutants/run.sh ] || skip "there are no mutants yet" || return
  counted tests/mutants/run.sh
}

# The tests were built and run before: here the archive must only configure, build, install, uninstall and clean up, and
# hold all that git tracks. A plain `make distcheck` runs its tests as well.
stage_dist() {
  configure_release || return
  parallel_make -C "$build_dir" distcheck TESTS= check_PROGRAMS= check_LIBRARIES= check_DATA= || return
  have git && git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1 || return 0
  local archive forgotten
  archive=$(make -s -C "$build_dir" --no-print-directory print-archive) || return
  forgotten=$(comm -23 <(git -c safe.directory='*' ls-files | grep -v '^\.gitignore$' | sort) \
    <(tar tzf "$build_dir/$archive" | sed 's,^[^/]*/,,' | sort))
  [ -n "$forgotten" ] || return 0
  printf 'not in %s; add it to EXTRA_DIST:\n%s\n' "$archive" "$forgotten"
  return 1
}

# Only on request: a machine's own GPU is not ours to use unasked.
stage_gpu() {
  have nvidia-smi && nvidia-smi -L >>"$log" 2>&1 || skip "this machine has no NVIDIA GPU with a working driver" || return
  stage_build && run_tests_in "$build_dir" check-gpu
}

stage_format() {
  have clang-format || skip "clang-format is missing; install clang-format" || return
  local file bad=()
  while IFS= read -r -d '' file; do
    clang-format --dry-run --Werror "$file" >>"$log" 2>&1 || bad+=("$file")
  done < <(find . -path ./build -prune -o \( -name '*.cc' -o -name '*.h' \) -type f -print0 | sort -z)
  [ ${#bad[@]} -gt 0 ] || return 0
  printf 'to do: clang-format -i%s\n' "$(printf ' %s' "${bad[@]#./}")"
  return 1
}

# ---- running them ---------------------------------------------------------------------------------------------------

table=()
total_passed=0 total_failed=0 total_skipped=0

run_stage() {
  local name=$1 title=$2 start=$SECONDS status verdict
  local passed=0 failed=0 skipped=0 note=
  local log=$log_dir/$name.log
  stop_building_ahead
  : >"$log" || exit 1
  printf '== %s: %s\n' "$name" "$title"
  "stage_$name"
  status=$?
  case $status in
    0) verdict=ok ;;
    77) verdict=skipped ;;
    *) verdict=FAILED ;;
  esac
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ] && [ "$failed" -eq 0 ]; then
    failed=1
  elif [ $((passed + failed + skipped)) -eq 0 ]; then
    if [ "$status" -eq 77 ]; then skipped=1; else passed=1; fi
  fi
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  total_skipped=$((total_skipped + skipped))
  table+=("$(printf '%-10s %-8s %7d %7d %8d %6ds  %s' \
    "$name" "$verdict" "$passed" "$failed" "$skipped" $((SECONDS - start)) "$note")")
  printf '   %s: %s in %d s%s\n' "$name" "$verdict" $((SECONDS - start)) "${note:+: $note}"
}

report() {
  printf '\n%-10s %-8s %7s %7s %8s %7s\n' stage result passed failed skipped time
  printf '%s\n' "${table[@]}"
  printf '%d passed, %d failed' "$total_passed" "$total_failed"
  [ "$total_skipped" -eq 0 ] || printf ', %d skipped' "$total_skipped"
  printf '\n'
  [ "$total_failed" -eq 0 ]
}

bad_usage() {
  printf 'check.sh: %s; see ./check.sh --help\n' "$1" >&2
  exit 2
}

main() {
  local chosen=all entry name title
  test_timeout=300 soak=
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h)
        usage
        exit 0
        ;;
      --build) chosen=packages,build ;;
      --mutants) chosen=packages,mutants ;;
      --gpu) chosen=packages,gpu ;;
      --soak)
        soak=yes
        export VGPU_STRESS_SECONDS=${VGPU_STRESS_SECONDS:-600}
        test_timeout=3600
        ;;
      --only)
        [ $# -gt 1 ] || bad_usage "--only needs the name of a stage"
        shift
        chosen=$1
        ;;
      *) bad_usage "unknown option '$1'" ;;
    esac
    shift
  done

  local names=" "
  for entry in "${stages[@]}" "build: " "gpu: "; do names+="${entry%%:*} "; done
  if [ "$chosen" != all ]; then
    for name in ${chosen//,/ }; do [[ $names == *" $name "* ]] || bad_usage "there is no stage '$name'"; done
    [[ ,$chosen, != *,build,* ]] || stages+=("build: everything, in build/")
    [[ ,$chosen, != *,gpu,* ]] || stages+=("gpu: what can be shown on this machine's own GPU")
  fi
  export TMPDIR=$build_dir/tmp  # nothing is left anywhere else
  mkdir -p "$log_dir" "$TMPDIR" || exit 1
  # Regions belong on a tmpfs. Whatever a test that was killed leaves there goes with this directory.
  VGPU_TEST_DIR=$(mktemp -d -p /dev/shm vgpu-check-XXXXXX 2>/dev/null || mktemp -d) || exit 1
  export VGPU_TEST_DIR
  chmod 755 "$VGPU_TEST_DIR"
  trap 'stop_building_ahead; rm -rf "$VGPU_TEST_DIR"' EXIT
  local wanted=() later=()
  for entry in "${stages[@]}"; do
    [ "$chosen" != all ] && [[ ,$chosen, != *,"${entry%%:*}",* ]] || wanted+=("$entry")
  done
  while [ ${#wanted[@]} -gt 0 ]; do
    entry=${wanted[0]} wanted=("${wanted[@]:1}")
    later=("${wanted[@]%%:*}")
    read -r title <<<"${entry#*:}"
    run_stage "${entry%%:*}" "$title"
  done
  report
}

main "$@"
