#!/bin/bash
# The RPM: made from this build by the spec, installed into a root of its own, and removed without a trace.
set -u
source=$(readlink -f "$(dirname "$0")/../..")
build=${VGPU_BUILD:-$PWD}
for tool in rpmbuild rpm; do
  command -v $tool >/dev/null || { echo "skipped: $tool is missing; install rpm" && exit 77; }
done
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile"):$(sed -n 's/^libdir = //p' "$build/Makefile")
[ "$prefix" = /usr:/usr/lib ] || { echo "skipped: this build is not for a package: configure --prefix=/usr --libdir=/usr/lib" && exit 77; }
for file in spank/spank_vgpu.so utils/vgpuctl/vgpuctl utils/vgpu-run/vgpu-run; do
  [ -e "$build/$file" ] || { echo "skipped: $file was not built" && exit 77; }
done

work=$(mktemp -d /tmp/vrpm-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
wrong() { echo "wrong: $*" && failures=$((failures + 1)); }

# The names of what it needs to be built are those of another distribution.
env -u MAKEFLAGS -u MAKELEVEL rpmbuild -bb --nodeps --quiet --define "_topdir $work" --define "prebuilt $build" \
  "$source/slurm-vgpu.spec" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
package=$(find "$work/RPMS" -name 'slurm-vgpu-*.rpm')
[ -e "$package" ] || { cat "$work/log" && exit 1; }

files=$(rpm -qpl "$package") || wrong "rpm cannot list $package"
for file in /usr/bin/vgpuctl /usr/bin/vgpu-run /usr/lib/slurm-vgpu/libvgpu.so /usr/libexec/slurm-vgpu/vgpu-probe \
  '/.*/slurm/spank_vgpu.so' '/usr/share/man/man8/spank_vgpu.8.*' /usr/share/bash-completion/completions/vgpuctl \
  '/.*/etc/plugstack.conf.d/vgpu.conf'; do
  grep -qx "$file" <<<"$files" || wrong "$file is not in the package"
done
! grep -e /usr/local -e "$work" <<<"$files" || wrong "that does not belong there"
[ "$(rpm -qp --qf '%{VERSION}' "$package")" = "$("$build/utils/vgpuctl/vgpuctl" --version | sed 's/.* //')" ] || wrong "its version"

root=$work/root
in_root() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
mkdir "$root"
in_root -i --nodeps "$package" || wrong "it cannot be installed"
"$root/usr/bin/vgpuctl" --version || wrong "what was installed does not run"
[ -z "$(in_root -V --nodeps slurm-vgpu)" ] || wrong "installed files differ from the package's"
in_root -e slurm-vgpu || wrong "it cannot be removed"
left=$(find "$root" -name '*vgpu*')
[ -z "$left" ] || wrong "left behind: $left"
[ $failures -eq 0 ]
