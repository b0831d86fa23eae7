#!/bin/bash
# The package, installed on the nodes of a cluster as an administrator would, and every command of the guides.
#
# What transcript.sh finds in docs/*.md is run: `$ ` on the submit host, as a user; `n1# ` on that node, as root. Without lines of
# output a command must only succeed. JOB is the last batch job.
. "$(dirname "$0")/spank_lib.sh"
. "$here/transcript.sh"
source=$(readlink -f "$here/../..")
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile"):$(sed -n 's/^libdir = //p' "$build/Makefile")
[ "$prefix" = /usr:/usr/lib ] || { echo "skipped: this build is not for a package: configure --prefix=/usr --libdir=/usr/lib" && exit 77; }
command -v dpkg-shlibdeps >/dev/null || { echo "skipped: dpkg-shlibdeps is missing; install dpkg-dev" && exit 77; }
for tool in vgpuctl vgpu-run; do
  [ -e "$build/utils/$tool/$tool" ] || { echo "skipped: $tool was not built; CLI11 or nlohmann's JSON is missing" && exit 77; }
done

home=$work/home # of the user, and of root while he is there
mkdir "$home" && chown games "$home" || exit 1

# ---- programs that the guides name ----------------------------------------------------------------------------------

cat >"$home/cuda.py" <<'END'
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
cuda.cuInit(0)
cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
mib = total.value >> 20
def take(size):
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size << 20))
END
cat >"$home/train.py" <<'END'
import cuda
print(f"a GPU of {cuda.mib} MiB", flush=True)
END
cat >"$home/app" <<'END'
#!/usr/bin/python3
import os, sys, time
sys.dont_write_bytecode = True
import cuda
def first(*names): return next((os.environ[name] for name in names if name in os.environ), "0")
rank, ranks = first("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "VGPU_RANK"), first("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "VGPU_SIZE")
size = int(sys.argv[1]) if len(sys.argv) > 1 else 100
error = cuda.take(size)
said = f"took {size} MiB" if error == 0 else f"got no {size} MiB: CUDA error {error}"
print(f"rank {rank} of {ranks}: a GPU of {cuda.mib} MiB, {said}", flush=True)
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
sys.exit(error != 0)
END
chmod 755 "$home/app"

# ---- a cluster to install on ----------------------------------------------------------------------------------------

# Nodes share the machine's files. What is installed on one stays there, in memory.
cat >"$work/furnish" <<END
set -e
layer() { # DIRECTORY: changes to it are this node's own
  mkdir -p "/run/layers\$1/new" "/run/layers\$1/work"
  mount -t overlay overlay -o "lowerdir=\$1,upperdir=/run/layers\$1/new,workdir=/run/layers\$1/work" "\$1"
}
layer /usr
layer /var/lib
layer /var/log
mkdir -p /etc/slurm && mount --bind "$work/lab/etc" /etc/slurm
# There is no systemd here.
cat >/usr/bin/systemctl <<'STUB'
#!/bin/sh
[ "\$*" = "restart slurmd" ] || exit 1
read -r pid <"$work/lab/spool/\$(hostname)/slurmd.pid"
kill "\$pid"
while kill -0 "\$pid" 2>/dev/null; do sleep 0.05; done
exec env SLURM_CONF=/etc/slurm/slurm.conf slurmd -N "\$(hostname)" >/dev/null 2>&1 </dev/null
STUB
chmod 755 /usr/bin/systemctl
END

build_package() {
  mkdir "$work/package" && cp -r "$source/debian" "$work/package/" || return
  (cd "$work/package" && env -u MAKEFLAGS -u MAKELEVEL make -f debian/rules binary build="$build" output="$home") >"$work/package.log" 2>&1 ||
    { cat "$work/package.log" && return 1; }
  chmod 755 "$home"
}

start_cluster() {
  local node
  "$lab" start "$work/lab" --cpus 8 --gpu-type a100 --shards 156 --owner $$ --simgpu "$build/simgpu" \
    --simgpu-config "${gpus/8GiB/80GiB}" --plugstack '# the plugin comes with the package' \
    --job-submit "$source/etc/job_submit.lua" "$source/etc/vgpu_submit.lua" || exit 1
  for node in ctl n1 n2; do on $node bash "$work/furnish" || exit 1; done
  eval "$("$lab" env "$work/lab")"
  export SLURM_CONF
}

run_on() { run "$lab" node "$work/lab" "$1" -- "${@:2}"; }

# ---- the guides -----------------------------------------------------------------------------------------------------

# on_host HOST COMMAND_LINE
on_host() {
  local as=
  [ "$1" != ctl ] || as=$games
  on "$1" $as env -u LD_LIBRARY_PATH HOME="$home" SLURM_CONF=/etc/slurm/slurm.conf OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 XDG_RUNTIME_DIR="$work" timeout 60 bash -c "cd '$home' && $2" </dev/null 2>&1
}

has_memory() { on n1 vgpuctl list -n -P -o mem-used -j "$last_job" 2>/dev/null | grep -q MiB; }
nothing_completes() { [ -z "$(squeue -h -t COMPLETING)" ]; }
ended() { [ -z "$(squeue -h -j "$1" 2>/dev/null)" ] && no_regions; }

# The guide shows one node. The other gets the same, or jobs there would fail.
all_restarted() {
  on n2 systemctl restart slurmd
  eventually on n1 test -e /run/vgpu/node && eventually on n2 test -e /run/vgpu/node && "$lab" wait "$work/lab"
}

# execute HOST COMMAND EXPECTED
execute() {
  local host=$1 command expected
  command=$(sed "s/\\bJOB\\b/$last_job/g" <<<"$2")
  expected=$(sed "s/\\bJOB\\b/$last_job/g" <<<"$3")
  eventually nothing_completes # or Slurm would take the other node
  output=$(on_host "$host" "$command")
  status=$?
  [ -z "$expected" ] || matches "$expected" "$output" || complain "$command: expected:" "$expected"$'\nbut it said:\n'"$output"
  [ $status -eq 0 ] || [[ $expected == *error* ]] || complain "$command: status $status:" "$output"
  case $command in
    *'sbatch --wait'*) ;;
    *sbatch*)
      last_job=${output##* }
      eventually has_memory || complain "$command: the job takes no memory" "$(squeue)"
      ;;
    scancel*) eventually ended "$last_job" || complain "$command: it is still there" ;;
    *'restart slurmd') all_restarted || complain "slurmd does not come back" ;;
  esac
}

# run_guide FILE COMMANDS: all of them, and at least so many.
run_guide() {
  last_job=
  each_command execute "$home" <"$source/docs/$1"
  echo "$1: $commands commands"
  [ "$commands" -ge "$2" ] || complain "$1: only $commands commands were found"
}

test_the_package_is_built() {
  local deb
  build_package || complain "debian/rules failed"
  deb=$(echo "$home"/slurm-vgpu_*.deb)
  run dpkg-deb -c "$deb"
  output_has ./usr/lib/slurm-vgpu/libvgpu.so
  output_has /slurm-wlm/spank_vgpu.so
  output_has ./usr/bin/vgpuctl
  output_has ./usr/share/man/man1/vgpu-run.1.gz
  output_lacks ./usr/local
  # The guide installs it on n1; here the others get it.
  for node in ctl n2; do
    run_on $node dpkg -i "$deb"
    status_is 0
  done
  run_on ctl dpkg -V slurm-vgpu
  equal "files that differ from the package's" "" "$output"
}

test_the_guide_for_administrators() { run_guide admin.md 18; }

test_the_guide_for_users() { run_guide user.md 14; }

# With their comments, as they stand below its first paragraph.
test_the_first_commands_of_the_readme() {
  local line host lines=0
  while IFS= read -r line; do
    host=ctl
    [[ $line != vgpu-run* ]] || host=n1
    output=$(on_host "$host" "$line")
    status=$?
    status_is 0
    output_has "a GPU of 8192 MiB, took 100 MiB"
    output_has "of 8GiB"
    lines=$((lines + 1))
  done < <(sed -n '/^## /q; s/^    //p' "$source/README.md")
  equal "commands" 3 "$lines"
}

test_the_package_goes_without_a_trace() {
  run_on n1 dpkg --purge slurm-vgpu
  status_is 0
  run_on n1 find /usr /etc/slurm/ -name '*vgpu*' -not -path '*plugstack*' -not -name 'vgpu_submit.lua'
  equal "left on the node" "" "$output"
  run_on n1 ls -d /var/lib/slurm-vgpu
  status_is 2 # what was measured there
}

start_cluster
run_tests "$@"
