# The same table bare, in a job, and in one with a share of the GPU's time, side by side.
calls() { sed '1d; /^->/d; s/ *[^ ]*$//' "$work/$1"; }
figures() { sed '1d; /^->/d; s/.* //' "$work/$1"; }

side_by_side() {
  printf '%-48s  %8s  %8s  %11s\n' "us each" bare "in a job" "--gpu-sm=90"
  paste -d '\t' <(calls bare) <(figures bare) <(figures job) <(figures share) |
    awk -F '\t' '{ printf "%-48s  %8s  %8s  %11s\n", $1, $2, $3, $4 }'
}

section_events() {
  "$tables" growth || return
  echo
  "$tables" events >"$work/bare" || { cat "$work/bare" && return 1; }
  in_job --gpu-mem=4G -- "$tables" events >"$work/job" 2>"$work/err" || { cat "$work/job" "$work/err" && return 1; }
  in_job --gpu-mem=4G --gpu-sm=90 -- "$tables" events >"$work/share" 2>"$work/err" || { cat "$work/share" "$work/err" && return 1; }
  side_by_side
  grep '^->' "$work/bare"
}
