// Contexts: what they take, and what goes down with them.
#include "driver/flags.h"
#include "runtime/charge.h"
#include "runtime/context_charge.h"
#include "runtime/host_pid.h"
#include "runtime/look.h"
#include "sm/captures.h"
#include "sm/first_launch.h"
#include "sm/held.h"
#include "sm/metered.h"

using namespace vgpu;
using namespace vgpu::driver;
using namespace vgpu::region;
using namespace vgpu::runtime;

namespace {

// A call that makes a context on a device. `opened` enters it, and says which it is; `undo` unmakes it.
template <typename Call, typename Opened, typename Undo>
CUresult make_context(CUdevice ordinal, Call call, Opened opened, Undo undo, Makes makes = Makes::context) {
  const Mode now = mode();
  if (now != Mode::active) return now == Mode::inert ? call() : kNotReady;
  const int dev = region_device(ordinal);
  if (dev == kNotInJob) {
    // A device that does not exist, or a driver that is not ready: the driver says so.
    if (!exists(ordinal)) return call();
    log_not_in_job();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto index = static_cast<unsigned>(dev);
  ContextCharge untracked(index, makes);
  if (!untracked.granted()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result;
  {
    HostPidSearch search(index);
    result = call();
    if (result == CUDA_SUCCESS) search.finish();
  }
  if (result != CUDA_SUCCESS) {
    untracked.cancel();
    return result;
  }
  if (untracked.settle(opened())) return CUDA_SUCCESS;
  undo();
  untracked.cancel();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The context with this number is gone, and all that was in it. Returns its device.
int drop_context(unsigned number) {
  const ClosedContext closed = context_closed(number);
  if (launches_are_metered()) {
    sm::forget_captures_of_closed_contexts();
    sm::forget_functions();
    sm::forget_held_of_closed_contexts();
    sm::doubt_costs();
  }
  note_pools_may_shrink();
  recheck_pools_when_due();
  if (closed.dev != kNotInJob) context_gone(static_cast<unsigned>(closed.dev), closed.charged);
  return closed.dev;
}

void settle_after_drop(int dev) {
  if (dev != kNotInJob) settle_untracked(static_cast<unsigned>(dev), Kind::context);
}

int device_of(CUcontext context) {
  Place place;
  return known_place(context, &place) ? place.dev : kNotInJob;
}

template <typename Call>
CUresult destroy_context(CUcontext context, Call call) {
  if (mode() != Mode::active) return call();
  int gone_from = kNotInJob;
  CUresult result;
  {
    const BooksLag lag(device_of(context));
    const unsigned number = context_closing(context);
    result = call();
    if (result == CUDA_SUCCESS) {
      gone_from = drop_context(number);
    } else {
      context_kept(number);
    }
  }
  settle_after_drop(gone_from);
  return result;
}

// A context that did not fit was to be destroyed. Where the driver fails at that, it is there, and is charged with the
// next measurement, over the limit or not.
void undone(unsigned number, CUresult result) {
  if (result == CUDA_SUCCESS) {
    context_closed(number);
    return;
  }
  context_kept(number);
  note_untracked_growth();
}

// The driver writes the handle; a caller whose context is undone must not see it.
template <typename Call>
CUresult create_context(CUcontext *context, CUdevice ordinal, Call call) {
  CUcontext made = nullptr;
  const CUresult result = make_context(
      ordinal, [&] { return call(context != nullptr ? &made : nullptr); },
      [&] {
        context_opened(made, ordinal);
        return made;
      },
      [&] {
        const unsigned number = context_closing(made);
        undone(number, REAL(cuCtxDestroy_v2)(made));
      });
  if (result == CUDA_SUCCESS) *context = made;
  return result;
}

bool is_active(CUdevice ordinal, bool if_unknown) {
  unsigned flags = 0;
  int active = 0;
  return REAL(cuDevicePrimaryCtxGetState)(ordinal, &flags, &active) == CUDA_SUCCESS ? active != 0 : if_unknown;
}

// The driver counts who uses a primary context; it tells whether anything is left.
template <typename Call>
CUresult release_primary(CUdevice ordinal, Call call) {
  const CUcontext context = mode() == Mode::active ? primary_context(ordinal) : nullptr;
  if (context == nullptr) return call();
  int gone_from = kNotInJob;
  CUresult result;
  {
    const BooksLag lag(device_of(context));
    result = call();
    if (result == CUDA_SUCCESS && !is_active(ordinal, true)) gone_from = drop_context(context_closing(context));
  }
  settle_after_drop(gone_from);
  return result;
}

CUresult destroy_green(CUgreenCtx context, CUdevice ordinal) {
  return release_primary(ordinal, [&] {
    green_closing(context);
    const CUresult result = REAL(cuGreenCtxDestroy)(context);
    if (result == CUDA_SUCCESS) {
      green_closed(context);
    } else {
      green_kept(context);
    }
    return result;
  });
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) { return mode() == Mode::closed ? kNotReady : REAL(cuInit)(flags); }

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_context(context, device, [&](CUcontext *made) { return REAL(cuCtxCreate)(made, flags, device); });
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_context(context, device, [&](CUcontext *made) { return REAL(cuCtxCreate_v2)(made, flags, device); });
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
                        CUdevice device) {
  return create_context(context, device,
                        [&](CUcontext *made) { return REAL(cuCtxCreate_v3)(made, params, count, flags, device); });
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device) {
  return create_context(context, device,
                        [&](CUcontext *made) { return REAL(cuCtxCreate_v4)(made, params, flags, device); });
}

CUresult cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_context(context, device, [&](CUcontext *made) { return REAL(cuGLCtxCreate)(made, flags, device); });
}

CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_context(context, device, [&](CUcontext *made) { return REAL(cuGLCtxCreate_v2)(made, flags, device); });
}

CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device, unsigned int vdp_device,
                          void *vdp_get_proc_address) {
  return create_context(context, device, [&](CUcontext *made) {
    return REAL(cuVDPAUCtxCreate)(made, flags, device, vdp_device, vdp_get_proc_address);
  });
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device, unsigned int vdp_device,
                             void *vdp_get_proc_address) {
  return create_context(context, device, [&](CUcontext *made) {
    return REAL(cuVDPAUCtxCreate_v2)(made, flags, device, vdp_device, vdp_get_proc_address);
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  CUcontext retained = nullptr;
  const auto call = [&] { return REAL(cuDevicePrimaryCtxRetain)(context != nullptr ? &retained : nullptr, device); };
  // One more use of a context that is there takes nothing. If it goes at this very moment, the next measure finds it.
  const bool known = mode() == Mode::active && primary_context(device) != nullptr;
  if (known || (mode() == Mode::active && region_device(device) != kNotInJob && is_active(device, false))) {
    const CUresult result = call();
    if (result != CUDA_SUCCESS) return result;
    primary_retained(*context = retained, device);
    // Made by a way that we do not see, such as the driver's private tables.
    if (!known) charge_unseen_context(static_cast<unsigned>(region_device(device)), retained);
    return result;
  }
  const CUresult result = make_context(
      device, call,
      [&] {
        primary_retained(retained, device);
        return retained;
      },
      [&] {
        const CUresult released = REAL(cuDevicePrimaryCtxRelease_v2)(device);
        undone(context_closing(retained), released);
      });
  if (result == CUDA_SUCCESS) *context = retained;
  return result;
}

// A green context keeps the primary context, which it makes if there is none, and all memory is that one's.
CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
  CUgreenCtx made = nullptr;
  const Makes makes = mode() == Mode::active && primary_context(device) != nullptr ? Makes::less : Makes::context;
  const auto opened = [&] {
    CUcontext primary = nullptr;
    if (REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS) return primary;
    primary_retained(primary, device);
    green_opened(made, primary);
    REAL(cuDevicePrimaryCtxRelease_v2)(device);
    return makes == Makes::context ? primary : nullptr;
  };
  const CUresult result = make_context(
      device, [&] { return REAL(cuGreenCtxCreate)(context != nullptr ? &made : nullptr, resources, device, flags); },
      opened, [&] { destroy_green(made, device); }, makes);
  if (result == CUDA_SUCCESS) *context = made;
  return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  Place place;
  if (mode() != Mode::active || !green_place(context, &place)) return REAL(cuGreenCtxDestroy)(context);
  const CUresult result = destroy_green(context, place.ordinal);
  if (result == CUDA_SUCCESS) settle_untracked(static_cast<unsigned>(place.dev), Kind::other);
  return result;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
  const CUresult result = REAL(cuCtxFromGreenCtx)(context, green);
  if (result == CUDA_SUCCESS && mode() == Mode::active) green_converted(green, *context);
  return result;
}

// Heaps for printf and malloc on the device are as large as they are asked to be.
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  const auto call = [&] { return REAL(cuCtxSetLimit)(limit, value); };
  Place place;
  size_t before = 0;
  const bool is_heap = limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
  if (mode() != Mode::active || !is_heap || !current_place(&place) || place.dev == kNotInJob ||
      REAL(cuCtxGetLimit)(&before, limit) != CUDA_SUCCESS) {
    return remeasure_after(call());  // stacks, queues
  }
  UntrackedCharge untracked(static_cast<unsigned>(place.dev), Kind::other, value > before ? value - before : 0);
  if (!untracked.granted()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  if (result == CUDA_SUCCESS && untracked.settle()) return result;
  if (result == CUDA_SUCCESS) REAL(cuCtxSetLimit)(limit, before);
  untracked.cancel();
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release_primary(device, [&] { return REAL(cuDevicePrimaryCtxRelease)(device); });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release_primary(device, [&] { return REAL(cuDevicePrimaryCtxRelease_v2)(device); });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return release_primary(device, [&] { return REAL(cuDevicePrimaryCtxReset)(device); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return release_primary(device, [&] { return REAL(cuDevicePrimaryCtxReset_v2)(device); });
}

CUresult cuCtxDestroy(CUcontext context) {
  return destroy_context(context, [&] { return REAL(cuCtxDestroy)(context); });
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy_context(context, [&] { return REAL(cuCtxDestroy_v2)(context); });
}

CUresult cuCtxAttach(CUcontext *context, unsigned int flags) {
  const CUresult result = REAL(cuCtxAttach)(context, flags);
  if (result == CUDA_SUCCESS && mode() == Mode::active) context_attached(*context);
  return result;
}

CUresult cuCtxDetach(CUcontext context) {
  const auto call = [&] { return REAL(cuCtxDetach)(context); };
  if (mode() != Mode::active) return call();
  const CUresult result = context_detached(context) == 0 ? destroy_context(context, call) : call();
  if (result != CUDA_SUCCESS) context_attached(context);
  return result;
}

}  // extern "C"
