section_books() { "$tables" books env XDG_RUNTIME_DIR="$work" "$build/utils/vgpu-run/vgpu-run" --gpu-mem=4G -- "$tables" steps; }
