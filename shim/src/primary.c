/*
 * Primary contexts, one per device and counted, and green contexts, which are parts of them.
 */
#include "context.h"
#include "device.h"
#include "private.h"
#include "probe.h"
#include "spin.h"

/* Held while a primary context may come or go, so that one thread sees it come. */
static void *lifecycle;

static void lock(void)
{
    uint32_t *held = private_root(&lifecycle, sizeof *held);
    if (held != NULL)
        spin_lock(held);
}

static void unlock(void)
{
    uint32_t *held = private_root(&lifecycle, sizeof *held);
    if (held != NULL)
        spin_unlock(held);
}

static bool is_active(CUdevice ordinal)
{
    unsigned flags = 0;
    int active = 0;
    return real.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS && active != 0;
}

/* Calls what may bring the primary context to life; `undo` ends it again if it does not fit. */
#define ACTIVATES(name, undo, parameters, ...)                                                     \
    static CUresult activate_by_##name parameters                                                  \
    {                                                                                              \
        struct making making;                                                                      \
        const int device = device_of(ordinal);                                                     \
        if (device < 0)                                                                            \
            return CUDA_ERROR_INVALID_DEVICE;                                                      \
        if (is_active(ordinal))                                                                    \
            return REAL(name, __VA_ARGS__);                                                        \
        if (!context_begin(&making, device))                                                       \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        if (result != CUDA_SUCCESS) {                                                              \
            charge_return(device, making.ahead);                                                   \
            return result;                                                                         \
        }                                                                                          \
        if (context_finish(&making, device_primary(ordinal)))                                      \
            return CUDA_SUCCESS;                                                                   \
        undo;                                                                                      \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    }                                                                                              \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        lock();                                                                                    \
        const CUresult result = activate_by_##name(__VA_ARGS__);                                   \
        unlock();                                                                                  \
        return result;                                                                             \
    }
ACTIVATES(cuDevicePrimaryCtxRetain, (void)REAL(cuDevicePrimaryCtxRelease_v2, ordinal),
          (CUcontext * context, CUdevice ordinal), context, ordinal)
ACTIVATES(cuGreenCtxCreate, (void)REAL(cuGreenCtxDestroy, *green),
          (CUgreenCtx * green, CUdevResourceDesc description, CUdevice ordinal, unsigned flags),
          green, description, ordinal, flags)

#define DEACTIVATES(name)                                                                          \
    EXPORT CUresult name(CUdevice ordinal)                                                         \
    {                                                                                              \
        ENTER(name, ordinal);                                                                      \
        lock();                                                                                    \
        probes_hold();                                                                             \
        const CUresult result = REAL(name, ordinal);                                               \
        const bool ended = result == CUDA_SUCCESS && !is_active(ordinal);                          \
        if (ended)                                                                                 \
            probes_forget_device(device_of(ordinal));                                              \
        probes_release();                                                                          \
        if (ended)                                                                                 \
            context_end(device_primary(ordinal));                                                  \
        unlock();                                                                                  \
        return result;                                                                             \
    }
DEACTIVATES(cuDevicePrimaryCtxRelease)
DEACTIVATES(cuDevicePrimaryCtxRelease_v2)
DEACTIVATES(cuDevicePrimaryCtxReset)
DEACTIVATES(cuDevicePrimaryCtxReset_v2)

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    ENTER(cuGreenCtxDestroy, green);
    lock();
    probes_hold();
    const CUresult result = REAL(cuGreenCtxDestroy, green);
    for (CUdevice ordinal = 0; result == CUDA_SUCCESS && ordinal < DEVICES_MOST; ordinal++)
        if (device_of(ordinal) >= 0 && !is_active(ordinal)) {
            probes_forget_device(device_of(ordinal));
            context_end(device_primary(ordinal));
        }
    probes_release();
    unlock();
    return result;
}
