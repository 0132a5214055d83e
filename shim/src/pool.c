/*
 * The stream-ordered allocator.
 *
 * An allocation from a pool takes nothing from the device while the pool has room; freeing it gives
 * nothing back. What counts is what the pool has reserved, which the driver tells. It grows inside
 * allocating calls, so there the growth to expect is taken before and corrected after; it shrinks
 * when the driver sees that work has finished, so it is asked after synchronisations, and whenever
 * memory is short or somebody wants to know how much is free.
 */
#include "pool_list.h"

#include "allocations.h"
#include "device.h"

/* What pools grow by multiples of: at first what drivers are known to do, then what was seen. */
static uint64_t step_bytes = 32 << 20;

static bool is_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static uint64_t in_steps(uint64_t charge, uint64_t step)
{
    return (charge + step - 1) / step * step;
}

/* What has to be taken before the driver may serve a request; 0 when the pool has room for it. */
static uint64_t growth_ahead(const struct pool *pool, size_t bytes)
{
    uint64_t used = 0;
    if (pool_ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && used <= pool->charged_bytes &&
        bytes <= pool->charged_bytes - used)
        return 0;
    return in_steps(charge_of(bytes), step_bytes);
}

/* Learns from a growth how this driver's pools grow. */
static void learn_step(uint64_t charge, uint64_t growth)
{
    while (step_bytes > BLOCK_BYTES && in_steps(charge, step_bytes) > growth)
        step_bytes /= 2;
    while (step_bytes < CHARGE_IMPOSSIBLE && in_steps(charge, step_bytes) < growth)
        step_bytes *= 2;
}

/* One allocation under way. */
struct request {
    struct pools *pools; /* locked; NULL: nothing to book */
    struct pool *pool;
    uint64_t ahead;
};

/*
 * Finds the pool, and takes for its growth. Answers whether the driver may be asked; the pools stay
 * locked until finish(), so that growth is seen by the call that caused it.
 */
static bool begin(struct request *request, CUmemoryPool handle, size_t bytes, CUstream stream)
{
    *request = (struct request){.pools = NULL};
    /* Captured, it takes nothing now; it is charged when the graph is launched. */
    if (is_capturing(stream))
        return true;
    request->pools = pools_lock();
    if (request->pools == NULL)
        return false;
    struct pool *pool = pool_find(request->pools, handle);
    if (pool == NULL)
        pool = pool_add_default(request->pools, handle);
    request->pool = pool;
    if (pool == NULL || pool->state != POOL_CHARGED)
        return pool != NULL;
    pool_settle(pool, 0);
    const uint64_t ahead = growth_ahead(pool, bytes);
    if (ahead == 0)
        return true;
    /* Making room looks at all pools. */
    const int device = pool->device;
    pools_unlock(request->pools);
    charge_make_room(device, ahead);
    const bool fits = ledger_reserve((unsigned)device, ahead);
    request->pools = pools_lock();
    request->ahead = fits ? ahead : 0;
    return fits;
}

/* Books the growth and the allocation; false: the pool grew by more than fits. */
static bool book(struct request *request, CUdeviceptr address, size_t bytes)
{
    struct pool *pool = request->pool;
    uint64_t reserved = 0;
    pool_ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    if (reserved > pool->charged_bytes)
        learn_step(charge_of(bytes), reserved - pool->charged_bytes);
    if (reserved > pool->charged_bytes + request->ahead) {
        const uint64_t missing = reserved - pool->charged_bytes - request->ahead;
        if (!ledger_reserve((unsigned)pool->device, missing))
            return false;
        request->ahead += missing;
    }
    const uint64_t place = (uint64_t)(pool - request->pools->list);
    device_current();
    if (allocation_join(KIND_POOLED, address, place, pool->device, thread.owner) != STANDING_NONE)
        pool->live++;
    return true;
}

static CUresult finish(struct request *request, CUresult result, const CUdeviceptr *address,
                       size_t bytes, CUstream stream)
{
    struct pool *pool = request->pool;
    if (pool != NULL && pool->state == POOL_CHARGED) {
        if (result == CUDA_SUCCESS && !book(request, *address, bytes)) {
            (void)REAL(cuMemFreeAsync, *address, stream);
            (void)REAL(cuMemPoolTrimTo, pool->handle, 0);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        pool_settle(pool, request->ahead);
    }
    if (request->pools != NULL)
        pools_unlock(request->pools);
    return result;
}

/* The pool that a stream allocates from: its device's current one. */
static bool pool_of_stream(CUstream stream, CUmemoryPool *pool)
{
    CUdevice ordinal = -1;
    CUcontext context = NULL;
    const bool is_default =
        stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    if (is_default || real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
        real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        if (real.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
            return false;
    } else {
        real.cuCtxGetDevice(&ordinal);
        real.cuCtxPopCurrent_v2(&context);
    }
    return real.cuDeviceGetMemPool(pool, ordinal) == CUDA_SUCCESS;
}

/* _ptsz twins differ only in what the driver takes a null stream for. */
#define ALLOC_ASYNC(name)                                                                          \
    EXPORT CUresult name(CUdeviceptr *address, size_t bytes, CUstream stream)                      \
    {                                                                                              \
        ENTER(name, address, bytes, stream);                                                       \
        CUmemoryPool pool;                                                                         \
        struct request request;                                                                    \
        if (!pool_of_stream(stream, &pool))                                                        \
            return real.name(address, bytes, stream);                                              \
        if (!begin(&request, pool, bytes, stream))                                                 \
            return finish(&request, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, stream);                    \
        return finish(&request, REAL(name, address, bytes, stream), address, bytes, stream);       \
    }
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM_POOL(name)                                                                      \
    EXPORT CUresult name(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)   \
    {                                                                                              \
        ENTER(name, address, bytes, pool, stream);                                                 \
        struct request request;                                                                    \
        if (!begin(&request, pool, bytes, stream))                                                 \
            return finish(&request, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, stream);                    \
        return finish(&request, REAL(name, address, bytes, pool, stream), address, bytes, stream); \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

/* --- freeing ------------------------------------------------------------------------------- */

void pooled_leave(struct pooled *pooled, CUdeviceptr address)
{
    struct allocation allocation;
    pooled->is_known = allocation_leave(KIND_POOLED, address, &allocation) != STANDING_NONE;
    pooled->place = pooled->is_known ? allocation.bytes : 0;
    pooled->owner = pooled->is_known ? allocation.owner : 0;
}

static void end_one(struct pool *pool)
{
    pool->live -= pool->live > 0;
    if (pool->state == POOL_CHARGED)
        pool_settle(pool, 0);
    pool_end_if_empty(pool);
}

void pooled_ended(uint64_t place)
{
    struct pools *pools = pools_lock();
    if (pools == NULL)
        return;
    end_one(&pools->list[place]);
    pools_unlock(pools);
}

CUresult pooled_finish(const struct pooled *pooled, CUdeviceptr address, CUresult result)
{
    struct pools *pools = pooled->is_known ? pools_lock() : NULL;
    if (pools == NULL) {
        charge_settle();
        return result;
    }
    struct pool *pool = &pools->list[pooled->place];
    if (result != CUDA_SUCCESS) {
        allocation_join(KIND_POOLED, address, pooled->place, pool->device, pooled->owner);
    } else {
        end_one(pool);
    }
    pools_unlock(pools);
    return result;
}

#define FREE_ASYNC(name)                                                                           \
    EXPORT CUresult name(CUdeviceptr address, CUstream stream)                                     \
    {                                                                                              \
        ENTER(name, address, stream);                                                              \
        struct pooled pooled;                                                                      \
        pooled_leave(&pooled, address);                                                            \
        return pooled_finish(&pooled, address, REAL(name, address, stream));                       \
    }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)
