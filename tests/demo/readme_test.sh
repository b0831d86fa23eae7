#!/bin/bash
# The README's way to build, install and try by hand: what it says is what is tested, and lands where the samples look for it. Its
# transcript is compared by tests/slurm/demo_test.sh, and its first commands are run by tests/slurm/guides_test.sh.
set -u
source=$(readlink -f "$(dirname "$0")/../..")
build=${VGPU_BUILD:-$PWD}
. "$source/tests/slurm/transcript.sh"
unset MAKEFLAGS MAKELEVEL
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile"):$(sed -n 's/^libdir = //p' "$build/Makefile")
[ "$prefix" = /usr:/usr/lib ] || { echo "skipped: this build is not for a package: configure --prefix=/usr --libdir=/usr/lib" && exit 77; }

work=$(mktemp -d /tmp/vreadme-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
failures=0
wrong() { echo "wrong: $*" && failures=$((failures + 1)); }

# in_block COMMAND: the line of the README's section on building that begins with it.
in_block() { section Build "$source/README.md" | sed -n "s|^    \($1.*\)|\1|p" | head -n 1; }

# ---- what it needs, and how it is configured ------------------------------------------------------------------------

# What Debian has only in non-free is in the paragraph below; make is always there where packages are built.
apt=$(in_block 'apt-get install' | tr ' ' '\n' | tail -n +3 | grep -vx make | sort | xargs)
needed=$(sed -n 's/^Build-Depends: //p' "$source/debian/control" | sed 's/([^)]*)//g' | tr -d ' ' | tr ',' '\n' |
  grep -vx -e nvidia-cuda-dev -e libnvidia-ml-dev | sort | xargs)
[ "$apt" = "$needed" ] || wrong "the README installs '$apt', debian/control needs '$needed'"

options=$(in_block '../configure' | cut -d ' ' -f 2-)
[ "$options" = "$(sed -n 's/^configure_flags = //p' "$source/debian/rules")" ] || wrong "debian/rules configures otherwise: $options"
tested=" $("$build/config.status" --config | tr -d \') "
for option in $options; do [[ $tested == *" $option "* ]] || wrong "the tests are of a build without $option:$tested"; done

# ---- what is installed, where ---------------------------------------------------------------------------------------

install=$(in_block 'make install')
(cd "$build" && DESTDIR=$work/stage bash -c "$install") >"$work/log" 2>&1 || { cat "$work/log" && wrong "$install"; }
plugin=$(sed -n 's/.*spankdir=\([^ ]*\).*/\1/p' <<<"$install")/spank_vgpu.so
[ -e "$work/stage$plugin" ] || wrong "there is no $plugin"
for theirs in /usr/lib/x86_64-linux-gnu/slurm*/job_submit_lua.so; do
  [ ! -e "$theirs" ] || [ "${theirs%/*}" = "${plugin%/*}" ] || wrong "Slurm has its plugins in ${theirs%/*}, the README installs $plugin"
done
# What samples, guides and manual pages name.
named=$(grep -rhoE '/usr/[a-z./]*slurm-vgpu/[-a-z./]*[a-z]' "$source"/{etc,docs,spank/spank_vgpu.8} | sort -u)
grep -qx /usr/lib/slurm-vgpu/libvgpu.so <<<"$named" || wrong "the samples name no library"
for file in $named; do [ -e "$work/stage$file" ] || wrong "$file is named, and not installed"; done
[ -z "$(find "$work/stage" -path '*/usr/local*')" ] || wrong "something goes to /usr/local"

# ---- programs on the simulated GPU ----------------------------------------------------------------------------------

run() { # HOST COMMAND EXPECTED: in this shell, which keeps what `eval` exports
  eval "$2" >"$work/said" 2>&1 || wrong "$2: status $?: $(cat "$work/said")"
  [ -z "$3" ] || matches "$3" "$(cat "$work/said")" || wrong "$2: expected:"$'\n'"$3"$'\nbut it said:\n'"$(cat "$work/said")"
}
if ! command -v gpustat >/dev/null; then
  echo "gpustat is missing; that part is left out"
elif [ -e "$build/simgpu/13.0/libcuda.so.1" ]; then
  mkdir "$work/tree" && ln -s "$source/simgpu" "$work/tree/simgpu" && ln -s "$build" "$work/tree/build" && cd "$work/tree" || exit 1
  export SIMGPU_NODE=$work/node XDG_RUNTIME_DIR=$work # nobody else's GPUs, nor jobs
  each_command run < <(section Test "$source/README.md")
  "$build/simgpu/simgpu-ctl" stop >/dev/null
  [ "$commands" -ge 4 ] || wrong "the README has only $commands such commands"
fi
[ $failures -eq 0 ]
