#!/bin/sh
# What libvgpu.so asks of a machine and of a process: libc of 2.17 or newer, and nothing else.
library=${1:-libvgpu/libvgpu.so}
status=0

expect() { # WHAT WANTED HAVE
  if [ "$2" = "$3" ]; then
    echo "ok: $1: $3"
  else
    echo "FAILED: $1: $3, not $2"
    status=1
  fi
}

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
expect "needs" libc.so.6 "$needed"
newest=$(readelf -VW "$library" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
expect "of glibc at most 2.17 (its newest symbol: $newest)" 2.17 "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -n 1)"
expect "symbols of libstdc++" 0 "$(nm -DC --undefined-only "$library" | grep -v __cxa_finalize | grep -c 'std::\|operator new\|__cxa_\|__gxx_')"
expect "segments that can be written and executed" 0 "$(readelf -lW "$library" | grep -c 'LOAD.* RWE ')"
expect "executable stack" 0 "$(readelf -lW "$library" | grep -c 'GNU_STACK.* RWE ')"
expect "relocations in code" 0 "$(readelf -dW "$library" | grep -c TEXTREL)"
# Initial-exec: no call into the loader, which may not be ready, and nothing allocated at first use.
expect "thread-local storage that is set up late" 0 "$(readelf -rW "$library" | grep -c 'DTPMOD\|DTPOFF\|TLSDESC')"
expect "is bound at once and stays" "NODELETE NOW" \
  "$(readelf -dW "$library" | sed -n 's/.*(FLAGS_1).*Flags: //p' | tr ' ' '\n' | sort | tr '\n' ' ' | sed 's/ *$//')"
# Somebody's symbols of the same name must not become ours: what is undefined is libc's or a weak hook of the tool chain.
expect "undefined symbols without a version" 0 \
  "$(nm -D --undefined-only "$library" | grep -v ' w ' | grep -vc '@')"
exit $status
