# VGPU_CXX_20: appends -std=c++20 to CXX, so that it holds for every check and for every file.
AC_DEFUN([VGPU_CXX_20], [
  AC_MSG_CHECKING([whether $CXX supports C++20])
  CXX="$CXX -std=c++20"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
    #include <atomic>
    #include <bit>
    #include <concepts>
    #if __cplusplus < 202002L
    #error an older language
    #endif
    static_assert(std::atomic<unsigned long>::is_always_lock_free);
    static_assert(std::has_single_bit(512u));
    template <std::integral T> T same(T value) { return value; }
    ]], [[return same(0);]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$CXX cannot compile C++20; install g++ 12 or clang 14, or newer])])
])

# VGPU_CXX_LP64: refuses -m32 and x32 on a 64-bit machine, where the host's name alone says nothing.
AC_DEFUN([VGPU_CXX_LP64], [
  AC_MSG_CHECKING([whether $CXX compiles for a 64-bit little-endian machine])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
    static_assert(sizeof(void *) == 8 && sizeof(long) == 8);
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    ]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([slurm-vgpu needs 64-bit pointers and little-endian words; see CXXFLAGS])])
])

# VGPU_CXX_WARNINGS: sets WARN_CXXFLAGS.
AC_DEFUN([VGPU_CXX_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat compiler warnings as errors])],
    [], [enable_werror=no])
  WARN_CXXFLAGS="-Wall -Wextra"
  # clang checks what base/mutex.h declares. -Werror: a compiler must not accept the option by ignoring it.
  AC_MSG_CHECKING([whether $CXX checks which mutex guards what])
  vgpu_saved_cxxflags=$CXXFLAGS
  CXXFLAGS="$CXXFLAGS -Wthread-safety -Werror"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM],
    [AC_MSG_RESULT([yes])
     WARN_CXXFLAGS="$WARN_CXXFLAGS -Wthread-safety"],
    [AC_MSG_RESULT([no])])
  CXXFLAGS=$vgpu_saved_cxxflags
  AS_IF([test "x$enable_werror" = xyes], [WARN_CXXFLAGS="$WARN_CXXFLAGS -Werror"])
  AC_SUBST([WARN_CXXFLAGS])
])

# VGPU_SANITIZERS: --enable-asan, --enable-tsan, --enable-ubsan. The flags go into CXX: a program of which only a part
# is instrumented reports nonsense, so no rule gets the chance to forget them.
AC_DEFUN([VGPU_SANITIZERS], [
  AC_ARG_ENABLE([asan],
    [AS_HELP_STRING([--enable-asan], [build everything with AddressSanitizer])], [], [enable_asan=no])
  AC_ARG_ENABLE([tsan],
    [AS_HELP_STRING([--enable-tsan], [build everything with ThreadSanitizer])], [], [enable_tsan=no])
  AC_ARG_ENABLE([ubsan],
    [AS_HELP_STRING([--enable-ubsan], [build everything with UndefinedBehaviorSanitizer])], [], [enable_ubsan=no])
  AS_IF([test "x$enable_asan" = xyes && test "x$enable_tsan" = xyes],
    [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other; build twice, in two directories])])

  vgpu_sanitizers=
  AS_IF([test "x$enable_asan" = xyes], [vgpu_sanitizers="$vgpu_sanitizers address"])
  AS_IF([test "x$enable_tsan" = xyes], [vgpu_sanitizers="$vgpu_sanitizers thread"])
  AS_IF([test "x$enable_ubsan" = xyes], [vgpu_sanitizers="$vgpu_sanitizers undefined"])
  vgpu_summary_sanitizers=none
  AS_IF([test -n "$vgpu_sanitizers"], [
    vgpu_summary_sanitizers=`echo $vgpu_sanitizers | tr ' ' ','`
    # CUDA's enumerations are C's: any value may arrive, and is passed on.
    CXX="$CXX -fsanitize=$vgpu_summary_sanitizers -fno-sanitize=enum -fno-sanitize-recover=all -fno-omit-frame-pointer"
    AC_MSG_CHECKING([whether $CXX links])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cstdio>]], [[std::puts("");]])],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([the sanitizer's run-time library is missing; install libgcc-12-dev (g++) or libclang-rt-14-dev (clang)])])
  ])
  AM_CONDITIONAL([SANITIZED], [test -n "$vgpu_sanitizers"])
])
