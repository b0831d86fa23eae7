# How much of the GPU's time a busy program gets under a share: by the kernels' own clock, and in brackets by NVML from outside.
if [ -n "$simulated" ]; then seconds=0.8 before=0.16; else seconds=10 before=2; fi # a program first runs a fifth of its time unmeasured

# measure LIMIT KERNEL STREAMS: prints "PERCENT NVML"
measure() {
  local job=()
  [ "$1" = none ] || job=(in_job --gpu-sm="$1" --)
  { sleep "$before" && "$tables" watch "$seconds"; } >"$work/watched" &
  "${job[@]}" "$tables" share "$2" "$3" "$seconds" >"$work/share" 2>"$work/err" || { cat "$work/share" "$work/err" >&2 && wait && return 1; }
  wait
  printf '%s %s\n' "$(cut -d ' ' -f 2 "$work/share")" "$(<"$work/watched")"
}

section_shares() {
  local kernel streams limit percent nvml free row worst_over=0 worst_part=100 count=0
  printf '%-26s  %16s  %16s  %16s  %16s\n' "busy with" "no limit" "20 %" "50 %" "80 %"
  while read -r kernel streams; do
    row=$(printf '%-26s' "$kernel kernels, $streams $([ "$streams" = 1 ] && echo stream || echo streams)")
    for limit in none 20 50 80; do
      read -r percent nvml < <(measure "$limit" "$kernel" "$streams") || { printf '%s\n' "$row" && return 1; }
      row+=$(printf '  %16s' "$percent ($nvml)")
      if [ "$limit" = none ]; then free=$percent && continue; fi
      count=$((count + 1))
      read -r worst_over worst_part < <(awk -v got="$percent" -v cap="$limit" -v free="$free" -v over="$worst_over" -v part="$worst_part" '
        BEGIN { can = free < cap ? free : cap; if (got - cap > over) over = got - cap
                if (100 * got / can < part) part = 100 * got / can; printf "%.1f %.0f\n", over, part }')
    done
    printf '%s\n' "$row"
  done < <(printf '%s\n' '5us 1' '200us 1' '20ms 1' '200us 4')
  echo "percent of the time in which a kernel ran, by the device's clock (by NVML, from outside, with its lag)"
  conclude "$count shares: at most $worst_over points too much; at least $worst_part % of what the program could have had"
  awk -v over="$worst_over" -v part="$worst_part" 'BEGIN { exit !(over <= 2 && part >= 90) }'
}
