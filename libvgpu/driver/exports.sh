#!/bin/sh
# Reads table.def: "map" prints the linker's version script, "names" the hooked symbols, one a line.
set -eu
names() { sed -n 's/^\(CUDA\|NVML\)_HOOK(\([A-Za-z0-9_]*\),.*/\2/p' "$1"; }
case $1 in
  names) names "$2" ;;
  map)
    echo '{'
    echo '  global:'
    { names "$2"; printf '%s\n' dlopen dlsym dlvsym; } | sed 's/.*/    &;/'
    echo '  local: *;'
    echo '};'
    ;;
esac
