/*
 * Pools coming and going, and the moments at which they shrink.
 */
#include "pool_list.h"

#include "device.h"

/* Whether a pool's memory is a device's; for managed memory without a place, the current one's. */
static bool is_on_device(const CUmemPoolProps *properties, int *device)
{
    switch ((int)properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = device_of(properties->location.id);
        return true;
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
        *device = device_of(properties->location.localized.deviceId);
        return true;
    case CU_MEM_LOCATION_TYPE_NONE:
        *device = device_current();
        return true;
    default:
        return false;
    }
}

static bool remember(CUmemoryPool handle, enum pool_state state, int device)
{
    struct pools *pools = pools_lock();
    if (pools == NULL)
        return false;
    const bool is_added = pool_add(pools, handle, state, device) != NULL;
    pools_unlock(pools);
    return is_added;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties)
{
    ENTER(cuMemPoolCreate, handle, properties);
    const CUresult result = REAL(cuMemPoolCreate, handle, properties);
    if (result != CUDA_SUCCESS)
        return result;
    int device = 0;
    const enum pool_state state = is_on_device(properties, &device) ? POOL_CHARGED : POOL_ELSEWHERE;
    if (device >= 0 && remember(*handle, state, device))
        return CUDA_SUCCESS;
    (void)REAL(cuMemPoolDestroy, *handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shared,
                                                   CUmemAllocationHandleType type,
                                                   unsigned long long flags)
{
    ENTER(cuMemPoolImportFromShareableHandle, handle, shared, type, flags);
    const CUresult result = REAL(cuMemPoolImportFromShareableHandle, handle, shared, type, flags);
    if (result != CUDA_SUCCESS || remember(*handle, POOL_ELSEWHERE, 0))
        return result;
    (void)REAL(cuMemPoolDestroy, *handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    ENTER(cuMemPoolDestroy, handle);
    struct pools *pools = pools_lock();
    struct pool *pool = pools != NULL ? pool_find(pools, handle) : NULL;
    if (pool != NULL && pool->state == POOL_CHARGED)
        pool_settle(pool, 0);
    const CUresult result = REAL(cuMemPoolDestroy, handle);
    if (pool != NULL && result == CUDA_SUCCESS) {
        pool->state = pool->state == POOL_CHARGED ? POOL_DESTROYED : POOL_FREE;
        pool_end_if_empty(pool);
    }
    if (pools != NULL)
        pools_unlock(pools);
    return result;
}

/* What ends a wait may let pools shrink. */
#define SETTLES(name, parameters, ...)                                                             \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        const CUresult result = real.name(__VA_ARGS__);                                            \
        charge_settle();                                                                           \
        return result;                                                                             \
    }
SETTLES(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep_bytes), pool, keep_bytes)
SETTLES(cuStreamSynchronize, (CUstream stream), stream)
SETTLES(cuStreamSynchronize_ptsz, (CUstream stream), stream)
SETTLES(cuEventSynchronize, (CUevent event), event)
SETTLES(cuCtxSynchronize, (void), )
SETTLES(cuCtxSynchronize_v2, (CUcontext context), context)
