// Names every access to shared memory, so that tests can kill, stop or reschedule a rank right behind it.
// In a release build VGPU_STEP is nothing; in libregion_steps.a it calls `step_hook`.
#pragma once

// clang-format off
#define VGPU_STEPS_LIST(X)                                                                                     \
  /* help */      X(help_read_current) X(help_read_next) X(help_read_total) X(help_applied)                    \
  /* commit */    X(commit_read_total) X(commit_read_current) X(commit_read_limit) X(commit_swapped_total)     \
                  X(commit_lost_total) X(commit_applied)                                                       \
  /* rank */      X(operation_read_current) X(operation_published) X(peak_raised) X(refusal_counted)           \
  /* guard */     X(guard_read) X(guard_closed) X(guard_opened) X(guard_moved) X(guard_fixed) X(guard_retired)    \
                  X(retire_read_owner)                                                                         \
  /* finish */    X(finish_read_current) X(finish_read_next) X(finish_read_guard) X(finish_published)          \
                  X(finish_opened)                                                                             \
  /* info */      X(info_opened) X(info_written) X(info_closed)                                                \
  /* reclaim */   X(reclaim_read_total) X(reclaim_read_current) X(reclaim_read_next) X(reclaim_read_owner)     \
                  X(reclaim_published) X(reclaim_freed)                                                        \
  /* sweep */     X(sweep_read_owner) X(sweep_read_lanes) X(sweep_suspected)                                   \
  /* attach */    X(attach_namespace_entered) X(attach_token_taken) X(attach_claimed) X(attach_suspect_cleared) \
  /* exit */      X(leave_marked) X(leave_counted)                                                             \
  /* set_limit */ X(limit_stored) X(limit_read_total) X(limit_read_current) X(limit_published)                 \
                  X(limit_generation_raised)
// clang-format on

#ifdef VGPU_STEPS
namespace vgpu::region {

enum class Step {
#define VGPU_STEP_ENUMERATOR(name) name,
  VGPU_STEPS_LIST(VGPU_STEP_ENUMERATOR)
#undef VGPU_STEP_ENUMERATOR
      count
};

extern void (*step_hook)(Step);
const char *step_name(Step step);

}  // namespace vgpu::region
#define VGPU_STEP(name) \
  (::vgpu::region::step_hook != nullptr ? ::vgpu::region::step_hook(::vgpu::region::Step::name) : static_cast<void>(0))
#else
#define VGPU_STEP(name) static_cast<void>(0)
#endif
