# VGPU_WITH_HEADER(NAME, HEADER, WHAT, PACKAGE, [WITHOUT], [DIRECTORIES])
#
# --with-NAME[=DIR]. WITHOUT is what cannot be built without the header: then only --without-NAME does without, and a header
# that is missing is noted for VGPU_REFUSE_MISSING. Without WITHOUT it is used if present. DIRECTORIES is a macro that
# prints, one per line, include directories to try after the compiler's own.
#
# Sets NAME_CPPFLAGS, the conditional HAVE_NAME and $vgpu_summary_NAME.
AC_DEFUN([VGPU_WITH_HEADER], [
  m4_pushdef([vgpu_upper], m4_toupper([$1]))
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1@<:@=DIR@:>@],
      [use $3, found by the compiler or in DIR @<:@default=]m4_ifval([$5], [yes; needed for $5], [check])[@:>@])],
    [], [with_$1=]m4_ifval([$5], [yes], [check]))

  vgpu_upper[]_CPPFLAGS=
  vgpu_have=no
  vgpu_places=
  AS_CASE(["$with_$1"],
    [no], [vgpu_summary_$1="no (--without-$1)"],
    [yes|check], [vgpu_places="compiler
m4_ifval([$6], [`$6`])"],
    [/*], [
      AS_IF([test ! -d "$with_$1"], [AC_MSG_ERROR([--with-$1=$with_$1: no such directory])])
      vgpu_places=`ls -d "$with_$1/include" "$with_$1"/targets/*/include "$with_$1" 2>/dev/null`],
    [AC_MSG_ERROR([--with-$1=$with_$1: give yes, no, check or an absolute directory])])

  AS_IF([test "x$with_$1" != xno], [
    AC_MSG_CHECKING([for $3 ($2)])
    vgpu_saved_CPPFLAGS=$CPPFLAGS
    vgpu_saved_IFS=$IFS
    IFS='
'
    for vgpu_place in $vgpu_places; do
      IFS=$vgpu_saved_IFS
      # System directories: a warning in somebody else's header is not ours to repair. But never /usr/include, which
      # would hide the C++ library's own headers from each other.
      AS_IF([test "x$vgpu_place" = xcompiler], [vgpu_flags=],
        [test ! -f "$vgpu_place/$2"], [continue],
        [test "x$vgpu_place" = x/usr/include], [vgpu_flags=],
        [vgpu_flags="-isystem $vgpu_place"])
      CPPFLAGS="$vgpu_saved_CPPFLAGS $vgpu_flags"
      # Not compiled: CLI11 alone takes a compiler five seconds.
      AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <$2>]])], [vgpu_have=yes; break])
    done
    IFS=$vgpu_saved_IFS
    CPPFLAGS=$vgpu_saved_CPPFLAGS
    AS_IF([test $vgpu_have = yes], [
      vgpu_upper[]_CPPFLAGS=$vgpu_flags
      AS_IF([test -n "$vgpu_flags"], [vgpu_summary_$1="yes ($vgpu_place)"], [vgpu_summary_$1=yes])
      AC_MSG_RESULT([$vgpu_summary_$1])
    ], [
      AC_MSG_RESULT([no])
      vgpu_summary_$1="no (install $4)"
      AS_CASE(["$with_$1"],
        [check], [],
        [yes], [
          vgpu_missing="$vgpu_missing
  $3 ($2)m4_ifval([$5], [; --without-$1 builds all but $5])"
          vgpu_missing_packages="$vgpu_missing_packages $4"],
        [AC_MSG_ERROR([--with-$1=$with_$1: no usable $2 in that directory or its include directory])])
    ])
  ])

  AC_SUBST(vgpu_upper[]_CPPFLAGS)
  AM_CONDITIONAL([HAVE_]vgpu_upper, [test $vgpu_have = yes])
  m4_popdef([vgpu_upper])
])

# VGPU_REFUSE_MISSING: ends configure if VGPU_WITH_HEADER missed something, with all of it in one message.
AC_DEFUN([VGPU_REFUSE_MISSING], [
  vgpu_hint=
  AS_CASE(["$vgpu_missing_packages "], [*nvidia*],
    [vgpu_hint="
The packages of CUDA and NVML are in Debian's non-free; NVIDIA's own toolkit has the same headers."])
  AS_IF([test -n "$vgpu_missing"], [AC_MSG_ERROR([headers are missing:
$vgpu_missing

Install them:

  apt-get install$vgpu_missing_packages

or say where they are with --with-NAME=DIR.$vgpu_hint])])
])

# VGPU_CUDA_DIRECTORIES: a shell command that prints where CUDA's headers may be: the --with-cuda directory (for NVML,
# which comes with the toolkit), beside the nvcc on PATH, and NVIDIA's default place.
AC_DEFUN([VGPU_CUDA_DIRECTORIES],
[{ case $with_cuda in /*) echo "$with_cuda/include"; echo "$with_cuda";; esac
   vgpu_nvcc=$(command -v nvcc) &&
     vgpu_nvcc=$(readlink -f "$vgpu_nvcc") &&
     echo "${vgpu_nvcc%/bin/nvcc}/include"
   echo /usr/local/cuda/include; } 2>/dev/null])

# VGPU_GTEST: sets GTEST_LIBS, GTEST_CPPFLAGS, the conditionals HAVE_GTEST and GTEST_FROM_SOURCE, and
# $vgpu_summary_gtest. Where there is no library for the host, as in a cross build, it is built from GTEST_SOURCE.
AC_DEFUN([VGPU_GTEST], [
  AC_ARG_VAR([GTEST_SOURCE],
    [GoogleTest's source, for want of its library @<:@default=/usr/src/googletest/googletest@:>@])
  AS_VAR_SET_IF([GTEST_SOURCE], [], [GTEST_SOURCE=/usr/src/googletest/googletest])
  AC_MSG_CHECKING([for GoogleTest])
  vgpu_saved_LIBS=$LIBS
  GTEST_LIBS="-lgtest_main -lgtest -pthread"
  GTEST_CPPFLAGS=
  vgpu_gtest_from_source=no
  LIBS="$GTEST_LIBS $LIBS"
  # Not compiled, which takes long: the header is there, and its library has a main().
  AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <gtest/gtest.h>]])],
    [AC_LINK_IFELSE([AC_LANG_SOURCE([[]])], [vgpu_have_gtest=yes], [vgpu_have_gtest=no])], [vgpu_have_gtest=no])
  AS_IF([test $vgpu_have_gtest = yes], [vgpu_summary_gtest=yes],
    [AS_IF([test -f "$GTEST_SOURCE/src/gtest-all.cc"],
      [vgpu_summary_gtest="yes (built from $GTEST_SOURCE)"
       vgpu_gtest_from_source=yes
       GTEST_LIBS="tests/gtest/libgtest.a -pthread"
       GTEST_CPPFLAGS="-isystem $GTEST_SOURCE/include"],
      [vgpu_summary_gtest="no (install libgtest-dev)"; GTEST_LIBS=])])
  LIBS=$vgpu_saved_LIBS
  AC_MSG_RESULT([$vgpu_summary_gtest])
  AC_SUBST([GTEST_LIBS])
  AC_SUBST([GTEST_CPPFLAGS])
  AM_CONDITIONAL([HAVE_GTEST], [test -n "$GTEST_LIBS"])
  AM_CONDITIONAL([GTEST_FROM_SOURCE], [test $vgpu_gtest_from_source = yes])
])

# VGPU_EMULATOR: sets EMULATOR, which runs the test programs of a cross build.
AC_DEFUN([VGPU_EMULATOR], [
  AC_ARG_VAR([EMULATOR],
    [what runs the test programs of a cross build, for instance: qemu-aarch64 -L /usr/aarch64-linux-gnu])
  AS_IF([test -n "$EMULATOR"], [vgpu_summary_emulator=$EMULATOR],
    [test "x$cross_compiling" = xyes], [vgpu_summary_emulator="none (set EMULATOR to run tests)"],
    [vgpu_summary_emulator="not needed"])
  AM_CONDITIONAL([EMULATED], [test -n "$EMULATOR"])
])

# VGPU_NCURSES: sets NCURSES_LIBS, the conditional HAVE_NCURSES and $vgpu_summary_ncurses. The wide one, because bars are
# drawn with characters beyond ASCII.
AC_DEFUN([VGPU_NCURSES], [
  AC_MSG_CHECKING([for ncurses])
  vgpu_saved_LIBS=$LIBS
  NCURSES_LIBS="-lncursesw -ltinfo"
  LIBS="$NCURSES_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
    #define NCURSES_WIDECHAR 1
    #include <curses.h>
    ]], [[initscr(); addwstr(L"x");]])],
    [vgpu_summary_ncurses=yes],
    [vgpu_summary_ncurses="no (install libncurses-dev)"; NCURSES_LIBS=])
  LIBS=$vgpu_saved_LIBS
  AC_MSG_RESULT([$vgpu_summary_ncurses])
  AC_SUBST([NCURSES_LIBS])
  AM_CONDITIONAL([HAVE_NCURSES], [test -n "$NCURSES_LIBS"])
])
