# Completion of vgpuctl for bash. A test compares it with vgpuctl's own help.

_vgpuctl() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= i
  local commands="list show top report metrics gc set check topo audit"
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ " $commands " != *" ${COMP_WORDS[i]} "* ]] || { command=${COMP_WORDS[i]} && break; }
  done

  case $before in
    -j | --jobs)
      COMPREPLY=($(compgen -W "$(vgpuctl list -n -P -o jobid 2>/dev/null | sort -u)" -- "$word"))
      return
      ;;
    -u | --user)
      COMPREPLY=($(compgen -u -- "$word"))
      return
      ;;
    -i | --gpu)
      COMPREPLY=($(compgen -W "$(vgpuctl list -n -P -o gpu 2>/dev/null | sort -u)" -- "$word"))
      return
      ;;
    --region-dir | --job-files)
      COMPREPLY=($(compgen -d -- "$word"))
      return
      ;;
    --nvml-library | --library | --plugin | --plugstack | --record | --hwloc-xml | --output)
      COMPREPLY=($(compgen -f -- "$word"))
      return
      ;;
    -o | --format)
      if [ "$command" = metrics ]; then
        COMPREPLY=($(compgen -f -- "$word"))
      else
        COMPREPLY=($(compgen -W "jobid user uid gpu uuid pci numa mem-used mem-limit mem% peak sm-used sm-limit procs
          refused throttled launches created state" -- "$word"))
      fi
      return
      ;;
    --pid)
      COMPREPLY=($(compgen -W "$(cd /proc && echo [0-9]*)" -- "$word"))
      return
      ;;
    show | set)
      [[ $word == -* ]] || {
        COMPREPLY=($(compgen -W "$(vgpuctl list -n -P -o jobid 2>/dev/null | sort -u)" -- "$word"))
        return
      }
      ;;
  esac

  local options="--help --region-dir --nvml-library"
  case $command in
    list) options+=" --jobs --user --gpu --format --noheader --parsable --json --bytes --sm --watch --no-color" ;;
    show) options+=" --json --bytes --no-color" ;;
    top) options+=" --jobs --user --gpu --delay --no-sm --no-color" ;;
    report) options+=" --record --json" ;;
    metrics) options+=" --output --job-files --no-sm" ;;
    gc) options+=" --dry-run --older-than" ;;
    set) options+=" --gpu-mem --gpu-sm --gpu --plugstack --force" ;;
    check) options+=" --pid --measure --library --plugin --plugstack --no-color" ;;
    topo) options+=" --svg --hwloc-xml" ;;
    audit) options+=" --noheader --parsable --bytes --no-color" ;;
    *) options+=" --version $commands" ;;
  esac
  COMPREPLY=($(compgen -W "$options" -- "$word"))
}

complete -F _vgpuctl vgpuctl
