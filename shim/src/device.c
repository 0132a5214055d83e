/*
 * Which of the account's devices a driver's device or context is.
 */
#include "device.h"

#include "allocations.h"
#include "blocks.h"
#include "ledger.h"

/* Starts at one: a thread that has seen nothing yet has seen zero. */
uint32_t device_contexts = 1;

int8_t device_by_ordinal[DEVICES_MOST];
uint64_t device_bytes[DEVICES_MOST];
static uint8_t are_known;

static bool uuid_of(CUdevice ordinal, CUuuid *uuid)
{
    return real.cuDeviceGetUuid_v2(uuid, ordinal) == CUDA_SUCCESS ||
           real.cuDeviceGetUuid(uuid, ordinal) == CUDA_SUCCESS;
}

bool devices_known(void)
{
    if (__atomic_load_n(&are_known, __ATOMIC_ACQUIRE))
        return true;
    int count = 0;
    if (real.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < DEVICES_MOST; i++)
        device_by_ordinal[i] = DEVICE_HIDDEN;
    for (int i = 0; i < count && i < DEVICES_MOST; i++) {
        CUdevice ordinal = DEVICES_MOST;
        CUuuid uuid;
        size_t bytes = SIZE_MAX;
        if (real.cuDeviceGet(&ordinal, i) != CUDA_SUCCESS || ordinal < 0 ||
            ordinal >= DEVICES_MOST || !uuid_of(ordinal, &uuid))
            continue;
        const int device = ledger_find((const uint8_t *)uuid.bytes);
        real.cuDeviceTotalMem_v2(&bytes, ordinal);
        if (device >= 0)
            device_bytes[device] = bytes;
        device_by_ordinal[ordinal] = (int8_t)device;
    }
    __atomic_store_n(&are_known, 1, __ATOMIC_RELEASE);
    return true;
}

CUdevice device_ordinal(int device)
{
    for (CUdevice ordinal = 0; ordinal < DEVICES_MOST; ordinal++)
        if (device_by_ordinal[ordinal] == device)
            return ordinal;
    return -1;
}

void device_contexts_changed(void)
{
    __atomic_fetch_add(&device_contexts, 1, __ATOMIC_RELAXED);
}

int device_of_context(CUcontext context)
{
    const uint32_t contexts = __atomic_load_n(&device_contexts, __ATOMIC_RELAXED);
    CUdevice ordinal;
    if (context == NULL || real.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return DEVICE_NONE;
    /* What was not made by cuCtxCreate is primary, or green: those allocate in the primary one. */
    struct allocation made;
    thread.owner = allocation_find(KIND_CONTEXT, (uintptr_t)context, &made)
                       ? (uintptr_t)context
                       : device_primary(ordinal);
    thread.context = context;
    thread.contexts_seen = contexts;
    thread.device = device_of(ordinal);
    thread.note = thread.device < 0 ? 0 : note_of(thread.device, block_owner(thread.owner));
    return thread.device;
}
