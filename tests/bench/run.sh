#!/bin/sh
# Runs benchmark programs, shows what they print, and collects their figures.
#
#   run.sh BENCH_TSV PROGRAM...
#
# A figure is a line of five fields between tabs: figure, value, unit, goal, verdict. All other lines are just shown.
# Exit status: 0 if every program ran to its end, whatever the verdicts.
set -u

[ $# -ge 2 ] || { echo "usage: $0 BENCH_TSV PROGRAM..." >&2; exit 2; }
result=$1
shift

tab=$(printf '\t')
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
trap 'exit 1' HUP INT TERM

status=0
printf 'figure\tvalue\tunit\tgoal\tverdict\n' > "$result.new" || exit 1
for program; do
  echo "${program##*/} ..." >&2
  "$program" > "$output" || { echo "$0: $program failed" >&2; status=1; }
  awk -F "$tab" -v figures="$result.new" 'NF == 5 { print >> figures; next } { print }' "$output"
done
mv "$result.new" "$result" || exit 1

awk -F "$tab" '
  { for (i = 1; i <= 5; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } }
  END {
    for (row = 1; row <= NR; row++) {
      printf "%-*s  %*s  %-*s  %*s  %s\n", width[1], cell[row, 1], width[2], cell[row, 2], width[3], cell[row, 3],
        width[4], cell[row, 4], cell[row, 5]
    }
  }' "$result"
exit $status
