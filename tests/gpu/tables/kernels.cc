#include "kernels.h"

#include "tables.h"

namespace tables {

namespace {

std::string spin(const char *name, unsigned long ns) {
  return format(
      ".visible .entry spin_%s(.param .u64 record)\n{\n"
      "  .reg .u64 %%rd<6>;\n  .reg .pred %%p<3>;\n"
      "  ld.param.u64 %%rd1, [record];\n"
      "  mov.u64 %%rd2, %%globaltimer;\n"
      "  add.u64 %%rd3, %%rd2, %lu;\n"
      "again:\n"
      "  mov.u64 %%rd4, %%globaltimer;\n"
      "  setp.lt.u64 %%p1, %%rd4, %%rd3;\n"
      "  @%%p1 bra again;\n"
      "  setp.eq.u64 %%p2, %%rd1, 0;\n"
      "  @%%p2 bra done;\n"
      "  cvta.to.global.u64 %%rd5, %%rd1;\n"
      "  st.global.u64 [%%rd5], %%rd2;\n"
      "  st.global.u64 [%%rd5+8], %%rd4;\n"
      "done:\n  ret;\n}\n",
      name, ns);
}

// Indexed by what nobody knows when it is compiled, so that the frame stays in local memory.
const char *const kDeep =
    ".visible .entry deep(.param .u64 record)\n{\n"
    "  .local .align 8 .b8 frame[2048];\n"
    "  .reg .u64 %rd<7>;\n  .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [record];\n"
    "  and.b64 %rd2, %rd1, 2040;\n"
    "  mov.u64 %rd3, frame;\n"
    "  add.u64 %rd4, %rd3, %rd2;\n"
    "  st.local.u64 [%rd4], %rd1;\n"
    "  ld.local.u64 %rd5, [frame+1024];\n"
    "  setp.ne.u64 %p1, %rd5, 1;\n"
    "  @%p1 bra done;\n"
    "  cvta.to.global.u64 %rd6, %rd1;\n"
    "  st.global.u64 [%rd6], %rd5;\n"
    "done:\n  ret;\n}\n";

}  // namespace

std::string kernels() {
  int major = 0;
  check(CU(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device()),
        "cuDeviceGetAttribute");
  // The oldest target that a driver for such a device still compiles.
  const char *target = major >= 8 ? ".version 7.0\n.target sm_80\n" : ".version 6.0\n.target sm_50\n";
  return std::string(target) + ".address_size 64\n" + spin("5us", 5'000) + spin("200us", 200'000) +
         spin("20ms", 20'000'000) + spin("1s", 1'000'000'000) +
         ".visible .entry empty(.param .u64 record)\n{\n  ret;\n}\n" + kDeep;
}

}  // namespace tables
