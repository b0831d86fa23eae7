# How much of the GPU's time a busy program gets under a share: by the kernels' own clock, and in brackets by NVML from outside.
# A program first runs a fifth of its time unmeasured.
if [ -n "$simulated" ]; then seconds=0.8 before=0.16; else seconds=10 before=2; fi

# measure LIMIT KERNEL STREAMS: prints "PERCENT NVML"
measure() {
  local job=()
  [ "$1" = none ] || job=(in_job --gpu-sm="$1" --)
  { sleep "$before" && "$tables" watch "$seconds"; } >"$work/watched" &
  "${job[@]}" "$tables" share "$2" "$3" "$seconds" >"$work/share" 2>"$work/err" || { cat "$work/share" "$work/err" >&2 && wait && return 1; }
  wait
  printf '%s %s\n' "$(cut -d ' ' -f 2 "$work/share")" "$(<"$work/watched")"
}

# Of lines "GOT LIMIT FREE WHAT...": what a program could have is its limit, or what it gets without one if that is less. Returns 1
# if one got over 2 points too much, or less than 90 % of that.
judge() {
  awk '
    { what = $4; for (i = 5; i <= NF; i++) what = what " " $i
      what = " (" what " at " $2 " %)"
      could = $3 < $2 ? $3 : $2; over = $1 - $2; part = 100 * $1 / could
      if (NR == 1 || over > most) { most = over; most_what = what }
      if (NR == 1 || part < least) { least = part; least_what = what } }
    END {
      printf "-> %d shares: ", NR
      if (most > 0.05) printf "at most %.1f points too much%s; ", most, most_what; else printf "never too much; "
      printf "at least %.0f %% of what the program could have%s\n", least, least_what
      exit !(most <= 2 && least >= 90) }'
}

section_shares() {
  local kernel streams limit percent nvml free name row
  printf '%-28s  %16s  %16s  %16s  %16s\n' "busy with" "no limit" "20 %" "50 %" "80 %"
  while read -r kernel streams name; do
    row=$(printf '%-28s' "$name")
    for limit in none 20 50 80; do
      read -r percent nvml < <(measure "$limit" "$kernel" "$streams") || { printf '%s\n' "$row" && return 1; }
      row+=$(printf '  %16s' "$percent ($nvml)")
      if [ "$limit" = none ]; then free=$percent; else echo "$percent $limit $free $name" >>"$work/shares"; fi
    done
    printf '%s\n' "$row"
  done <<'END'
5us 1 kernels of 5 us
200us 1 kernels of 200 us
20ms 1 kernels of 20 ms
200us 4 kernels of 200 us, 4 streams
END
  echo "percent of the time in which a kernel ran, by the device's clock (by NVML, from outside, with its lag)"
  judge <"$work/shares"
}
