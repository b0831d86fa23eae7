#!/bin/bash
# Every test that alone.txt or long.txt names is one: a name that is spelled wrong, or of a test that is gone, says nothing.
set -u
here=$(cd "$(dirname "$0")" && pwd)
failed=0
for table in alone long; do
  while read -r path _; do
    folder=$here/$(basename "$(dirname "$path")")
    grep -qsE "%D%/$(basename "$path")( |$)" "$folder"/*.inc ||
      { echo "$table.txt: $path: no Makefile.inc in $folder has a test of that name" && failed=1; }
  done < <(grep '^[^#]' "$here/$table.txt")
done
exit $failed
