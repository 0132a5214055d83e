/*
 * Devices as the driver numbers them and as the account does.
 */
#pragma once

#include "hook.h"

enum {
    DEVICES_MOST = 64,
    DEVICE_HIDDEN = -1, /* not in the limits: as good as not there */
    DEVICE_NONE = -2,   /* no context is current */
};

/* Asks an initialised driver for its devices; false as long as it is not initialised. */
bool devices_known(void);

extern int8_t device_by_ordinal[DEVICES_MOST] INTERNAL;

/* The account's number of a device; DEVICE_HIDDEN when it has none. */
static inline int device_of(CUdevice ordinal)
{
    return LIKELY((unsigned)ordinal < DEVICES_MOST) ? device_by_ordinal[ordinal] : DEVICE_HIDDEN;
}

/* What each of the account's devices has in all. */
extern uint64_t device_bytes[DEVICES_MOST] INTERNAL;

/* The driver's number of one of the account's devices; -1 when the driver does not show it. */
CUdevice device_ordinal(int device);

/* Called when a context ends: its handle may come back as a context of another device. */
void device_contexts_changed(void);

/* The slow half of device_current. */
int device_of_context(CUcontext context);

extern uint32_t device_contexts INTERNAL;

/*
 * The account's device that the current context is on. thread.owner is then what memory allocated
 * in that context ends with: the context, or its device's primary one.
 */
static inline int device_current(void)
{
    CUcontext current = NULL;
    real.cuCtxGetCurrent(&current);
    if (LIKELY(current == thread.context &&
               thread.contexts_seen == __atomic_load_n(&device_contexts, __ATOMIC_RELAXED)))
        return thread.device;
    return device_of_context(current);
}

/* Stands for a device's primary context, whose handle says nothing before it is retained. */
static inline uint64_t device_primary(CUdevice ordinal)
{
    return (uint64_t)ordinal + 1;
}
