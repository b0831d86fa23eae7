#!/bin/bash
# Every part of sm_bench runs and gives its figures, and the documentation can be made of them. That is all: the figures of
# so short a run mean nothing. Runs in the build directory.
set -u
build=$PWD
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
complain() { echo "FAILED: $*" && failed=1; }

"$build/tests/bench/sm/sm_bench" --brief > output || complain "sm_bench --brief"
cat output

number='-?[0-9.]+(e[-+][0-9]+)?'
for figure in overshoot_max_points efficiency_min_percent hardware_overshoot_points hardware_efficiency_percent \
  capture_wait_ms lazy_ratio shapes_overshoot_points foreign_pids_overshoot_points no_nvml_error_points \
  autotune_error_percent split_error_points leader_loss_points launch_added_ns launch_added_of_many_ns \
  throttled_cpu_percent; do
  grep -qP "^sm\.$figure\t$number\t[^\t]+\t[0-9]+(\.[0-9]+)?\t(ok|short)\$" output || complain "no figure sm.$figure"
done
# The other limiter does something, or there is nothing to compare with: its first tokens come after 120 ms.
awk -F'\t' '$1 == "habit" && $2 ~ /once each/ { seen = $5 } END { exit !(seen >= 120) }' sm.tsv ||
  complain "the limiter that charges by blocks does not limit"

"$build/tests/bench/sm/sm_bench" --brief nothing 2> message && complain "a part that does not exist"
grep -q "no such part: nothing" message || complain "it does not say which part does not exist"

mkdir docs && cp "$here/../../../docs/sm.md" docs/
python3 "$here/docs.py" sm.tsv docs || complain "docs.py"
rows() { sed -n "/<!-- begin measured $1 -->/,/<!-- end measured $1 -->/p" docs/sm.md | grep -c '^| [^-]'; }
[ "$(rows combinations)" = 3 ] || complain "the table of combinations has $(rows combinations) lines"
[ "$(rows habits)" -ge 8 ] || complain "the table of habits has $(rows habits) lines"
[ "$(rows 'side by side')" = 3 ] || complain "the table side by side has $(rows 'side by side') lines"
grep -q '<polyline' docs/sm.svg || complain "no plot"
cp docs/sm.md once && python3 "$here/docs.py" sm.tsv docs && cmp once docs/sm.md || complain "a second time is not the same"
exit $failed
