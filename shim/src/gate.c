/*
 * Opens the account with the driver, or keeps programs out of it.
 */
#include "hook.h"

#include "device.h"
#include "ledger.h"
#include "visible.h"

_Thread_local __attribute__((tls_model("initial-exec"))) struct thread thread;

uint8_t gate_is_open;

enum gate gate_try(void)
{
    /* A program that calls a replacement without having loaded the driver means to load it. */
    if (!driver_load(LIBRARY_DRIVER))
        return GATE_SHUT;
    if (thread.inside != 0)
        return GATE_PASS;
    if (!ledger_ready())
        return GATE_SHUT;
    /* Before cuInit every call fails in the driver, with the driver's own reason. */
    if (!devices_known())
        return GATE_PASS;
    __atomic_store_n(&gate_is_open, 1, __ATOMIC_RELEASE);
    return GATE_OPEN;
}

EXPORT CUresult cuInit(unsigned flags)
{
    const enum gate state = gate_try();
    if (state == GATE_SHUT)
        return CUDA_ERROR_NO_DEVICE;
    struct visible before;
    visible_narrow(&before);
    const CUresult result = REAL(cuInit, flags);
    visible_restore(&before);
    return result;
}
