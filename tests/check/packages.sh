# Of check.sh: installs what packages.txt lists for a level, and fetches headers that no package of Debian has. Sourced.

stage_packages() {
  local status
  install_packages
  status=$?
  [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || return "$status"
  fetch_headers || note+="${note:+, }the headers of CUDA and NVML cannot be had; install NVIDIA's CUDA toolkit"
  [ "$level" = demo ] || fetch_old_headers || note+="${note:+, }the headers of CUDA 11.8 cannot be had"
  return "$status"
}

install_packages() {
  local missing optional package total can_be_had=()
  have dpkg-query || skip "this is not Debian; tests/check/packages.txt lists what is needed" || return
  read -ra missing < <(listed_packages must | not_installed)
  read -ra optional < <(listed_packages may | not_installed)
  [ $((${#missing[@]} + ${#optional[@]})) -gt 0 ] || return 0
  [ "$(id -u)" -eq 0 ] || skip "only root can install: ${missing[*]} ${optional[*]}" || return
  private_sources || return
  measured "package lists" '^(Get|Hit):' 3 0 private_apt update || return
  for package in "${optional[@]}"; do
    if private_apt -s install "$package" >/dev/null 2>&1; then can_be_had+=("$package"); else
      note+="${note:+, }cannot be had: $package"
    fi
  done
  missing+=("${can_be_had[@]}")
  total=$(private_apt -s install "${missing[@]}" 2>/dev/null | grep -c ^Inst)
  measured download '^Get:' 5 "$total" private_apt --download-only install "${missing[@]}" &&
    measured install '^Setting up ' 3 "$total" without_daemons private_apt install "${missing[@]}" &&
    touch "$build_dir/apt/installed"
}

# listed_packages must|may: of this level and those above it.
listed_packages() {
  awk -v levels=" ${levels_of[$level]} " -v need="$1" 'index(levels, " " $2 " ") && $3 == need { print $1 }' tests/check/packages.txt
}

not_installed() {
  local package missing=()
  while read -r package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  echo "${missing[*]}"
}

# apt-get through source lists and caches of our own, because some clients are in contrib and need non-free: the machine's
# stay as they are.
private_apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends -o Dir::Etc::SourceList="$build_dir/apt/sources.list" \
    -o Dir::Etc::SourceParts="$build_dir/apt/sources.list.d" -o Dir::State::Lists="$build_dir/apt/lists" "$@" </dev/null
}

private_sources() {
  mkdir -p "$build_dir/apt/sources.list.d" "$build_dir/apt/lists/partial" || return
  local file
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
    [ ! -e "$file" ] || sed -E '/^(deb|Components:) /s/ main\b.*/ main contrib non-free/' "$file" \
      >"$build_dir/apt/${file#/etc/apt/}" || return
  done
}

# Some packages hold daemons. None is started: nobody asked this machine to be a cluster.
without_daemons() {
  local policy=/usr/sbin/policy-rc.d
  (
    if [ ! -e "$policy" ]; then
      trap 'rm -f "$policy"' EXIT
      printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || exit
    fi
    "$@"
  )
}

# ---- headers --------------------------------------------------------------------------------------------------------

# On a machine without CUDA 13's toolkit: what NVIDIA publishes on PyPI, in build/cuda. configure_release finds it there.
fetch_headers() {
  local wheels=()
  toolkit_has 'cuda.h' 'define CUDA_VERSION 1[3-9]' || 
    wheels+=(nvidia-cuda-runtime==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-profiler-api==13.0.85)
  toolkit_has 'nvml.h' . || wheels+=(nvidia-nvml-dev==13.0.87)
  [ ${#wheels[@]} -eq 0 ] || fetch_wheels "$build_dir/cuda" "${wheels[@]}"
}

# toolkit_has HEADER PATTERN: where configure looks by itself.
toolkit_has() {
  local nvcc
  nvcc=$(readlink -f "$(command -v nvcc)")
  grep -qs "$2" "${nvcc%/bin/nvcc}/include/$1" "/usr/local/cuda/include/$1" "/usr/include/$1"
}

# The headers of an older toolkit, with which libvgpu.so must come out the same.
fetch_old_headers() { fetch_wheels "$build_dir/cuda-11.8" nvidia-cuda-runtime-cu11==11.8.89; }

# fetch_wheels DIRECTORY WHEEL...: their headers, in DIRECTORY/include.
fetch_wheels() {
  local directory=$1
  shift
  [ "$(cat "$directory/wheels" 2>/dev/null)" != "$*" ] || return 0
  rm -rf "$directory.part" && mkdir -p "$directory.part/include" || return
  (cd "$directory.part" &&
    timeout 120 python3 -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check "$@" &&
    for wheel in ./*.whl; do python3 -m zipfile -e "$wheel" unpacked || exit; done &&
    cp -r unpacked/nvidia/*/include/. include && rm -rf unpacked ./*.whl && echo "$*" >wheels) >>"$log" 2>&1 &&
    rm -rf "$directory" && mv "$directory.part" "$directory"
}

header_options() {
  [ ! -e "$build_dir/cuda/include/cuda.h" ] || echo "--with-cuda=$build_dir/cuda"
  [ ! -e "$build_dir/cuda/include/nvml.h" ] || echo "--with-nvml=$build_dir/cuda"
}
