// Which version this library is of, for `vgpuctl check` and for strings(1).
namespace {

[[gnu::used]] const char version_mark[] = "slurm-vgpu version " PACKAGE_VERSION;

}  // namespace
