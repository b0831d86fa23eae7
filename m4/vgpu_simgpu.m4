# VGPU_SIMGPU: whether the simulated GPU node of the tests can be built. After the checks for cuda and nvml.
#
# Sets the conditional HAVE_SIMGPU, PYTHON3, OBJCOPY, CUDA_INCLUDE (where cuda.h is) and $vgpu_summary_simgpu.
AC_DEFUN([VGPU_SIMGPU], [
  AC_ARG_VAR([PYTHON3], [python3, which makes the simulated driver's tables])
  AC_CHECK_PROG([PYTHON3], [python3], [python3])
  AC_CHECK_TOOL([OBJCOPY], [objcopy])
  vgpu_saved_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS $NVML_CPPFLAGS"
  AC_MSG_CHECKING([for the headers of CUDA 13 and NVML])
  AC_PREPROC_IFELSE([AC_LANG_SOURCE([[
    #include <cuda.h>
    #include <cudaTypedefs.h>
    #include <nvml.h>
    #if CUDA_VERSION < 13000
    #error an older toolkit
    #endif
    ]])],
    [vgpu_have_simgpu=yes; vgpu_summary_simgpu=yes],
    [vgpu_have_simgpu=no; vgpu_summary_simgpu="no (install the toolkit of CUDA 13 and libnvidia-ml-dev)"])
  AC_MSG_RESULT([$vgpu_have_simgpu])
  AS_IF([test -z "$PYTHON3"], [vgpu_have_simgpu=no; vgpu_summary_simgpu="no (install python3)"])
  AS_IF([test -z "$OBJCOPY"], [vgpu_have_simgpu=no; vgpu_summary_simgpu="no (install binutils)"])
  # Its users are this machine's own programs, and its parts start each other.
  AS_IF([test "x$cross_compiling" = xyes], [vgpu_have_simgpu=no; vgpu_summary_simgpu="no (cross build)"])
  # The generators read the header itself, so they must know where the compiler finds it.
  AC_SUBST([CUDA_INCLUDE],
    [`echo '#include <cuda.h>' | $CXX $CPPFLAGS -x c++ -E - 2>/dev/null | sed -n 's,^# 1 "\(.*\)/cuda\.h".*,\1,p' | sed q`])
  CPPFLAGS=$vgpu_saved_CPPFLAGS
  AM_CONDITIONAL([HAVE_SIMGPU], [test $vgpu_have_simgpu = yes])
])
