#!/bin/bash
# The plugin as a file: what it exports, what it needs, and that its man page knows all its keys. Needs no cluster.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_BUILD:-$PWD}
source=$here/../..
plugin=$build/spank/spank_vgpu.so
[ -e "$plugin" ] || { echo "skipped: the plugin was not built; Slurm's headers are missing" && exit 77; }
failed=0
equal() {
  if [ "$2" = "$3" ]; then
    echo "ok: $1"
  else
    printf 'FAILED: %s\n--- expected\n%s\n--- found\n%s\n' "$1" "$2" "$3" && failed=1
  fi
}

equal "exports exactly what Slurm looks for" "plugin_name plugin_type plugin_version slurm_spank_init slurm_spank_init_post_opt \
slurm_spank_job_epilog slurm_spank_job_prolog slurm_spank_task_exit slurm_spank_task_init_privileged slurm_spank_task_post_fork \
spank_plugin_version" \
  "$(nm -D --defined-only "$plugin" | awk '{ print $3 }' | LC_ALL=C sort | xargs)"

# All of these are in the spank.h and slurm.h of every version from 22.05 on. A new one needs a look at the newer headers.
equal "needs nothing of Slurm's that newer versions dropped" "slurm_error slurm_free_job_info_msg slurm_hostlist_create \
slurm_hostlist_destroy slurm_hostlist_shift slurm_info slurm_load_job slurm_spank_log spank_context spank_get_item spank_getenv spank_job_control_setenv \
spank_option_getopt spank_option_register spank_setenv spank_unsetenv" \
  "$(nm -D --undefined-only "$plugin" | awk '{ print $2 }' | grep -E '^(slurm|spank)_' | LC_ALL=C sort | xargs)"

equal "brings its C++ library along" "ld-linux libc libm" \
  "$(readelf -d "$plugin" | sed -n 's/.*NEEDED.*\[\(ld-linux\|libc\|libm\|[^]]*\)[-.].*\]/\1/p' | sed 's/-.*//;s/^ld$/ld-linux/' | LC_ALL=C sort -u | xargs)"

keys=$(sed -n 's/^    {"\([a-z_]*\)",.*/\1/p' "$source/node/site_config.cc" | LC_ALL=C sort)
documented=$(grep -oE '^\.B[IR] [a-z_]+=|\\fB[a-z_]+=' "$source/spank/spank_vgpu.8" | sed 's/^\.B[IR] //;s/^\\fB//;s/=//' | LC_ALL=C sort -u)
equal "the man page knows every key" "$keys" "$documented"

options=$(sed -n 's/^    {"\(gpu-[a-z]*\)",.*/\1/p' "$source/spank/options.cc" | xargs)
equal "the man page knows every option" "gpu-mem gpu-sm" "$options"
exit $failed
