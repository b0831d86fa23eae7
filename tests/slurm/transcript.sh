# Transcripts in Markdown, and how they are compared with what happens. Sourced by the tests of the guides and of the demo.
#
# In a block ```console, `$ ` begins a command of a user and `n1# ` one of root on that node. The lines below a command are its
# output, where `...` stands for anything, in any order. A block ```sh NAME is a file.
#
#   each_command FUNCTION [DIRECTORY]   reads Markdown; calls FUNCTION HOST COMMAND EXPECTED for every command, HOST being "ctl" for
#                                       `$ `, and writes files to DIRECTORY; sets $commands, their number
#   matches EXPECTED OUTPUT

each_command() {
  local line kind= host= command= expected= file=
  commands=0
  while IFS= read -r line <&4; do
    case $kind:$line in
      :'```console') kind=console ;;
      :'```sh '*) kind=file file=$2/${line#* } && : >"$file" ;;
      :'```'*) kind=other ;;
      console:'```' | console:'$ '* | console:n[0-9]'# '*)
        if [ -n "$command" ]; then
          "$1" "$host" "$command" "${expected%$'\n'}"
          commands=$((commands + 1))
        fi
        command= expected= host=ctl
        case $line in
          '```') kind= ;;
          '$ '*) command=${line#'$ '} ;;
          *) host=${line%%#*} command=${line#*# } ;;
        esac
        ;;
      console:*) expected+=$line$'\n' ;;
      *:'```') kind= ;;
      file:*) printf '%s\n' "$line" >>"$file" ;;
    esac
  done 4<&0
}

# matches_one LINE PATTERN...
matches_one() {
  local pattern
  for pattern in "${@:2}"; do
    pattern=$(sed 's/[][*?\\]/\\&/g; s/\.\.\./*/g' <<<"$pattern")
    # shellcheck disable=SC2053
    [[ $1 != $pattern ]] || return 0
  done
  return 1
}

# Every line of the output is expected, and every expected one is there. Not their order: standard output and error race.
matches() {
  local line said wanted found
  readarray -t wanted <<<"$1"
  readarray -t said <<<"$2"
  for line in "${said[@]}"; do matches_one "$line" "${wanted[@]}" || return 1; done
  for line in "${wanted[@]}"; do
    [ "$line" != ... ] || continue
    for found in "${said[@]}"; do ! matches_one "$found" "$line" || continue 2; done
    return 1
  done
}

# section HEADING FILE: what is below that heading of a Markdown file.
section() { awk -v heading="## $1" '/^## / { inside = $0 == heading } inside' "$2"; }
