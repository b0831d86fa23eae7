# Of protocol.sh: what several sections use. Sourced.

have() { command -v "$1" >/dev/null 2>&1; }
conclude() { printf -- '-> %s\n' "$*"; }
not_run() { conclude "$*" && return 77; }

# in_job OPTION... -- PROGRAM...: in a job of vgpu-run. What libvgpu says goes with the program's errors.
in_job() { XDG_RUNTIME_DIR=$work "$build/utils/vgpu-run/vgpu-run" "$@"; }

# part TITLE COMMAND...: has a heading of its own; what it concludes is not the section's conclusion.
part() { printf '\n-- %s\n' "$1" && shift && { "$@" 2>&1 | sed 's/^-> /   /'; }; }

version() {
  local number commit
  number=$(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' "$build/config.h")
  commit=$(git -c safe.directory='*' -C "$here" rev-parse --short HEAD 2>/dev/null)
  printf '%s%s' "${number:-?}" "${commit:+ ($commit)}"
}

# Whatever a program of others may have said of this machine. Names that say nothing, such as root, stay: they are also words.
without_names() {
  local name script=()
  for name in "${HOME:-}" "$build" "$here" "$work" "${TMPDIR:-}" "${SIMGPU_NODE:-}"; do
    [ "${#name}" -lt 2 ] || script+=(-e "s,$(plain "$name"),PATH,g")
  done
  for name in "$(uname -n)" "$(uname -n | cut -d . -f 1)"; do
    script+=(-e "s/\<on $(plain "$name")\>/on HOST/g")
    is_telling "$name" && script+=(-e "s/\<$(plain "$name")\>/HOST/g")
  done
  name=$(id -un 2>/dev/null || echo "${USER:-}")
  is_telling "$name" && script+=(-e "s/\<$(plain "$name")\>/USER/g")
  sed "${script[@]}" -e 's,/\(home\|root\|Users\)/[^ :"'"'"']*,PATH,g' -e 's/\(GPU\|MIG\)-[0-9a-f]\{8\}-[-0-9a-f]*/\1-UUID/g'
}
plain() { printf '%s' "$1" | sed 's/[][\.*^$,/]/\\&/g'; }
is_telling() {
  case $1 in root | ubuntu | debian | user | cuda | nvidia | localhost | slurm | gpu) return 1 ;; *) [ "${#1}" -gt 3 ] ;; esac
}
