/*
 * Contexts: what one takes itself, and everything that ends with it.
 *
 * How much a context takes is known only once it is there. What the last one on the device took is
 * taken from the account ahead; if it then turns out not to fit, the context is destroyed again.
 */
#include "context.h"

#include "allocations.h"
#include "device.h"
#include "pool.h"
#include "probe.h"
#include "virtual.h"

/* Where a context cannot be seen, or not be told from what neighbours do at the same time. */
#define CONTEXT_UNSEEN_BYTES (UINT64_C(256) << 20)
#define CONTEXT_MOST_BYTES (UINT64_C(2) << 30)

static uint64_t usual_bytes[DEVICES_MOST];

bool context_begin(struct making *making, int device)
{
    const uint64_t usual = __atomic_load_n(&usual_bytes[device], __ATOMIC_RELAXED);
    making->device = device;
    making->ahead = usual > 0 ? usual : BLOCK_BYTES;
    overhead_look(&making->before, device, NULL);
    if (!charge_take(device, making->ahead))
        return false;
    making->before.held_bytes += making->ahead;
    return true;
}

bool context_finish(struct making *making, uint64_t key)
{
    struct look after;
    overhead_look(&after, making->device, &making->before);
    const uint64_t taken =
        overhead_growth(&making->before, &after, CONTEXT_MOST_BYTES, CONTEXT_UNSEEN_BYTES);
    __atomic_store_n(&usual_bytes[making->device], taken, __ATOMIC_RELAXED);
    if (!charge_correct(making->device, making->ahead, taken))
        return false;
    if (allocation_join(KIND_CONTEXT, key, taken, making->device, 0) == STANDING_NONE) {
        charge_return(making->device, taken);
        return false;
    }
    device_contexts_changed();
    return true;
}

static void ended(const struct allocation *allocation)
{
    if (allocation->kind == KIND_POOLED) {
        pooled_ended(allocation->bytes);
        return;
    }
    charge_return(allocation->device, allocation->bytes);
    /* Only arrays without memory of their own are charged nothing; other memory may be in them. */
    if (allocation->bytes == 0)
        tiles_end(allocation->key);
}

static void block_ended(int device, uint64_t bytes)
{
    charge_return(device, bytes);
}

void context_end(uint64_t key)
{
    struct allocation context;
    enum standing standing;
    blocks_end(key, block_ended);
    allocation_end(key, ended);
    do
        standing = allocation_leave(KIND_CONTEXT, key, &context);
    while (standing == STANDING_SHARED);
    if (standing == STANDING_ALONE)
        charge_return(context.device, context.bytes);
    device_contexts_changed();
    charge_settle();
}

/* --- contexts that programs make ------------------------------------------------------------- */

#define CREATES(name, parameters, ...)                                                             \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        struct making making;                                                                      \
        const int device = device_of(ordinal);                                                     \
        if (device < 0)                                                                            \
            return CUDA_ERROR_INVALID_DEVICE;                                                      \
        if (!context_begin(&making, device))                                                       \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        if (result != CUDA_SUCCESS) {                                                              \
            charge_return(device, making.ahead);                                                   \
            return result;                                                                         \
        }                                                                                          \
        if (context_finish(&making, (uintptr_t)*context))                                          \
            return CUDA_SUCCESS;                                                                   \
        (void)REAL(cuCtxDestroy_v2, *context);                                                     \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    }
CREATES(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice ordinal), context, flags,
        ordinal)
CREATES(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice ordinal), context, flags,
        ordinal)
CREATES(cuCtxCreate_v3,
        (CUcontext * context, CUexecAffinityParam *affinities, int count, unsigned flags,
         CUdevice ordinal),
        context, affinities, count, flags, ordinal)
CREATES(cuCtxCreate_v4,
        (CUcontext * context, CUctxCreateParams *how, unsigned flags, CUdevice ordinal), context,
        how, flags, ordinal)
CREATES(cuGLCtxCreate, (CUcontext * context, unsigned flags, CUdevice ordinal), context, flags,
        ordinal)
CREATES(cuGLCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice ordinal), context, flags,
        ordinal)
CREATES(cuVDPAUCtxCreate,
        (CUcontext * context, unsigned flags, CUdevice ordinal, VdpDevice vdp,
         VdpGetProcAddress *find),
        context, flags, ordinal, vdp, find)
CREATES(cuVDPAUCtxCreate_v2,
        (CUcontext * context, unsigned flags, CUdevice ordinal, VdpDevice vdp,
         VdpGetProcAddress *find),
        context, flags, ordinal, vdp, find)

#define DESTROYS(name)                                                                             \
    EXPORT CUresult name(CUcontext context)                                                        \
    {                                                                                              \
        ENTER(name, context);                                                                      \
        probes_hold();                                                                             \
        const CUresult result = REAL(name, context);                                               \
        if (result == CUDA_SUCCESS)                                                                \
            probes_forget(context);                                                                \
        probes_release();                                                                          \
        if (result == CUDA_SUCCESS)                                                                \
            context_end((uintptr_t)context);                                                       \
        return result;                                                                             \
    }
DESTROYS(cuCtxDestroy)
DESTROYS(cuCtxDestroy_v2)

/* From the time when contexts were counted: each attaching needs a detaching. */
EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    ENTER(cuCtxAttach, context, flags);
    const CUresult result = REAL(cuCtxAttach, context, flags);
    struct allocation entry;
    if (result == CUDA_SUCCESS && allocation_find(KIND_CONTEXT, (uintptr_t)*context, &entry))
        allocation_join(KIND_CONTEXT, (uintptr_t)*context, entry.bytes, entry.device, 0);
    return result;
}

EXPORT CUresult cuCtxDetach(CUcontext context)
{
    ENTER(cuCtxDetach, context);
    probes_hold();
    const CUresult result = REAL(cuCtxDetach, context);
    if (result == CUDA_SUCCESS)
        probes_forget(context);
    probes_release();
    struct allocation entry;
    if (result != CUDA_SUCCESS)
        return result;
    if (allocation_leave(KIND_CONTEXT, (uintptr_t)context, &entry) == STANDING_ALONE) {
        charge_return(entry.device, entry.bytes);
        context_end((uintptr_t)context);
    }
    return result;
}

/* --- what a context takes later -------------------------------------------------------------- */

/* Heaps and buffers of kernels are in device memory, and their sizes are limits. */
EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    ENTER(cuCtxSetLimit, limit, value);
    const int device = device_current();
    size_t present = 0;
    if (device < 0 || real.cuCtxGetLimit(&present, limit) != CUDA_SUCCESS || value <= present)
        return real.cuCtxSetLimit(limit, value);
    struct look before;
    struct look after;
    overhead_glance(&before, device);
    const CUresult result = REAL(cuCtxSetLimit, limit, value);
    overhead_glance(&after, device);
    const uint64_t taken = overhead_growth(&before, &after, CONTEXT_MOST_BYTES, 0);
    if (result != CUDA_SUCCESS || taken == 0)
        return result;
    if (charge_take(device, taken)) {
        allocation_grow(KIND_CONTEXT, thread.owner, taken, device, 0);
        return CUDA_SUCCESS;
    }
    (void)REAL(cuCtxSetLimit, limit, present);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
