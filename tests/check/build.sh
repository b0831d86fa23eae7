# Of check.sh: configures and builds, in build/ and below it. Sourced.

generate_configure() {
  if [ -e configure ] && [ -z "$(find configure.ac Makefile.am m4 libvgpu node spank etc utils simgpu tests \
    \( -name configure.ac -o -name Makefile.am -o -name '*.m4' -o -name '*.inc' \) -newer configure -print -quit)" ]; then
    return
  fi
  measured autoreconf '^autoreconf: running' 3 0 autoreconf -fiv
}

# configure_in DIRECTORY ARGUMENT...: configures unless that was done before, with the same arguments and the same packages.
configure_in() {
  local directory=$1 before arguments=("${@:2}")
  # shellcheck disable=SC2207  # no spaces in them
  arguments+=($(header_options))
  generate_configure && mkdir -p "$directory" || return
  before=$(cat "$directory/configured-with" 2>/dev/null)
  [ "$before" != "${arguments[*]}" ] || [ "$build_dir/apt/installed" -nt "$directory/configured-with" ] || return 0
  [ ! -e "$directory/Makefile" ] || [ "$before" = "${arguments[*]}" ] || quietly make -C "$directory" clean || return
  measured configure '^checking ' 3 0 in_directory "$directory" "$source_dir/configure" "${arguments[@]}" || return
  printf '%s\n' "${arguments[*]}" >"$directory/configured-with"
}

in_directory() { (cd "$1" && "${@:2}"); }

# With the directories of a package, so that this build can be made one without compiling it again; see debian/rules.
configure_release() {
  configure_in "$build_dir" --enable-werror --prefix=/usr --libdir=/usr/lib --libexecdir=/usr/libexec --sysconfdir=/etc
}

# make_in DIRECTORY TARGET [VARIABLE=...]: counts the objects.
make_in() {
  local directory=$1 total
  shift
  # Each of automake's rules begins by saying what it makes.
  total=$(make -C "$directory" -n "$@" 2>/dev/null </dev/null | grep -o '^echo "  [A-Z][^;]*' | sort -u | wc -l)
  measured "make $1" '^  [A-Z]+ +' 2 "$total" make -C "$directory" -j"$(nproc)" --no-print-directory "$@"
}

make_tests_in() { make_in "$1" all && make_in "$1" check TESTS=; }
