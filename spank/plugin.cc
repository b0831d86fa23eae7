// The symbols that Slurm looks for: each finds out where it is running and hands over; no exception gets past here.
#include <exception>
#include <utility>

#include "contexts.h"
#include "log.h"

extern "C" {
// Declared first, because a const object of C++ is otherwise invisible to Slurm.
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(vgpu, 1)
}

namespace {

// For `vgpuctl check` and for strings(1).
[[gnu::used]] const char version_mark[] = "slurm-vgpu version " PACKAGE_VERSION;

using vgpu::spank::Arguments;
namespace client = vgpu::spank::client;
namespace prolog_epilog = vgpu::spank::prolog_epilog;
namespace slurmd = vgpu::spank::slurmd;
namespace stepd = vgpu::spank::stepd;

// What `work` returns; after an exception, what `failed` makes of its text.
template <typename Work, typename Failed>
int guarded(Work work, Failed failed) noexcept {
  try {
    return work();
  } catch (const std::exception &exception) {
    return failed(exception.what());
  } catch (...) {
    return failed("unknown exception");
  }
}

int fail(const char *what) {
  vgpu::spank::log_error("internal error: %s; please report it", what);
  return -1;
}

// Where a failure would drain the node.
int report(const char *what) {
  fail(what);
  return 0;
}

// Where nobody would see it; the tasks will.
int defer(const char *what) {
  return guarded(
      [what] {
        stepd::defer_failure((std::string("internal error: ") + what + "; please report it").c_str());
        return 0;
      },
      report);
}

template <typename Work>
int without_result(Work work) {
  work();
  return 0;
}

bool is_client() {
  const spank_context_t context = spank_context();
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

}  // namespace

extern "C" {

int slurm_spank_init(spank_t handle, int count, char **values) {
  const Arguments arguments = {count, values};
  switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
      return guarded([&] { return client::init(handle, arguments); }, fail);
    case S_CTX_SLURMD:
      return guarded([&] { return slurmd::init(arguments); }, fail);
    case S_CTX_REMOTE:
      return guarded([&] { return without_result([&] { stepd::init(handle, arguments); }); }, defer);
    default:
      return 0;
  }
}

int slurm_spank_init_post_opt(spank_t handle, int /*count*/, char ** /*values*/) {
  if (is_client()) return guarded([&] { return client::init_post_opt(handle); }, fail);
  if (spank_context() != S_CTX_REMOTE) return 0;
  return guarded([&] { return without_result([&] { stepd::init_post_opt(handle); }); }, defer);
}

int slurm_spank_job_prolog(spank_t handle, int count, char **values) {
  return guarded([&] { return without_result([&] { prolog_epilog::prolog(handle, {count, values}); }); }, report);
}

int slurm_spank_job_epilog(spank_t handle, int count, char **values) {
  return guarded([&] { return without_result([&] { prolog_epilog::epilog(handle, {count, values}); }); }, report);
}

int slurm_spank_task_init_privileged(spank_t handle, int /*count*/, char ** /*values*/) {
  return guarded([&] { return stepd::task_init_privileged(handle); }, fail);
}

int slurm_spank_task_post_fork(spank_t handle, int /*count*/, char ** /*values*/) {
  return guarded([&] { return without_result([&] { stepd::task_post_fork(handle); }); }, report);
}

int slurm_spank_task_exit(spank_t handle, int /*count*/, char ** /*values*/) {
  return guarded([&] { return without_result([&] { stepd::task_exit(handle); }); }, report);
}

}  // extern "C"
