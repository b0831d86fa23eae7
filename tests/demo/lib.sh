# Of demo.sh: how it tells its story, and how it waits. Sourced.

bold= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; fi

say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }

# show COMMAND...: the command as one would type it, then what it says. show_on NODE COMMAND...: there, as an administrator.
show() {
  printf '$ %s\n' "$(quoted "$@")"
  "$@"
}
show_on() {
  printf '%s# %s\n' "$1" "$(quoted "${@:2}")"
  on "$@"
}
quoted() { printf '%s' "$1" && printf ' %s' "${@@Q}" | sed "s/^ [^ ]*//; s/'\([-A-Za-z0-9_=%,.:/+]*\)'/\1/g"; }

# submit ARGUMENT...: sbatch, which sets $job.
submit() {
  printf '$ %s\n' "$(quoted sbatch "$@")"
  job=$(sbatch --parsable "$@") && echo "Submitted batch job $job"
}

until_true() {
  local deadline=$((SECONDS + 30))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { echo "demo.sh: waited in vain: $*" >&2 && exit 1; }
    sleep 0.1
  done
}
waits() { [ "$(squeue -h -j "$1" -o %r)" = Resources ]; }
says() { grep -qs "$2" "slurm-$1.out"; }
no_jobs() { [ -z "$(squeue -h)" ]; }
no_regions() { [ -z "$(on n1 find /run/vgpu -mindepth 1 -name '[0-9]*')" ]; }
