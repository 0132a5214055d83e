/* Memory pools: what they keep, what they let go of, and which one is current. */
#include "pool.h"

#include <string.h>

enum {
    MOST_POOLS = 1 << 12,
    POOL_CHUNK_BYTES = 32 << 20, /* by which hardware's pools grow */
};

static struct table pools = TABLE(struct pool, MOST_POOLS);
static struct pool *host_pool;
static struct pool *managed_pool;

void pools_forget(void)
{
    table_forget(&pools);
    host_pool = managed_pool = NULL;
}

CUresult pool_find(CUmemoryPool handle, struct pool **pool)
{
    TRY(driver_check());
    struct pool *found = (struct pool *)handle;
    REQUIRE(table_holds(&pools, found) && !found->is_destroyed);
    *pool = found;
    return CUDA_SUCCESS;
}

CUmemoryPool pool_of_piece(const struct piece *piece)
{
    return piece->use == PIECE_POOLED ? pool_handle(piece->detail) : NULL;
}

bool pool_piece_is_host(const struct piece *piece)
{
    return piece->use == PIECE_POOLED && ((const struct pool *)piece->detail)->heap.is_free &&
           ((const struct pool *)piece->detail)->properties.allocType ==
               CU_MEM_ALLOCATION_TYPE_PINNED;
}

static struct pool *new_pool(const CUmemPoolProps *properties)
{
    struct pool *pool = table_take(&pools);
    if (pool == NULL)
        return NULL;
    const bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    pool->properties = *properties;
    pool->device = on_device ? &driver.devices[properties->location.id] : NULL;
    heap_init(&pool->heap, on_device ? pool->device->index : 0, POOL_CHUNK_BYTES);
    pool->heap.keeps_empty = true;
    /* Managed memory lives on the host until it is prefetched. */
    pool->heap.is_free = !on_device || properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (properties->maxSize > 0)
        pool->heap.most_bytes = space_round(properties->maxSize);
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    if (on_device)
        pool->access[properties->location.id] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return pool;
}

static CUresult check_properties(const CUmemPoolProps *properties)
{
    const CUmemLocation *location = &properties->location;
    const bool managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    REQUIRE(managed || properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    REQUIRE(!managed || (properties->handleTypes == 0 && properties->maxSize == 0));
    if ((properties->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location->id >= 0 && (unsigned)location->id < driver.device_count
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        REQUIRE(properties->handleTypes == 0);
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_NONE:
        REQUIRE(managed);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult pool_create(const CUmemPoolProps *properties, struct pool **pool)
{
    TRY(check_properties(properties));
    *pool = new_pool(properties);
    return *pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pool_create_imported(const CUmemPoolProps *properties, struct pool **pool)
{
    TRY(pool_create(properties, pool));
    (*pool)->is_imported = true;
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && properties != NULL);
    struct pool *pool = NULL;
    TRY(pool_create(properties, &pool));
    *handle = pool_handle(pool);
    return CUDA_SUCCESS;
}

/* Ends a destroyed pool that has nothing outstanding; lock held. */
static void end_if_unused(struct pool *pool)
{
    if (!pool->is_destroyed || pool->allocations > 0)
        return;
    heap_trim(&pool->heap, 0);
    table_give(&pools, pool);
}

/* A piece of a pool ends: called by memory_drop, lock held. */
void pooled_end(struct piece *piece)
{
    struct pool *pool = piece->detail;
    pool->allocations--;
    if (pool->device != NULL)
        __atomic_store_n(&pool->device->pools_hold, true, __ATOMIC_RELAXED);
    heap_give(&pool->heap, piece);
    end_if_unused(pool);
}

ENTRY cuMemPoolDestroy(CUmemoryPool handle)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    REQUIRE(!pool->is_default);
    memory_lock();
    if (pool->device != NULL && pool->device->current_pool == pool)
        pool->device->current_pool = NULL;
    pool->is_destroyed = true;
    end_if_unused(pool);
    memory_unlock();
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    memory_lock();
    heap_trim(&pool->heap, keep_bytes);
    memory_unlock();
    return CUDA_SUCCESS;
}

struct trimming {
    const struct device *device;
    bool all;
};

static void trim(void *object, void *argument)
{
    struct pool *pool = object;
    const struct trimming *trimming = argument;
    if (pool->device == trimming->device)
        heap_trim(&pool->heap, trimming->all ? 0 : pool->release_threshold);
}

void pools_settle(const struct device *device)
{
    bool *hold = &driver.devices[device->ordinal].pools_hold;
    if (!__atomic_load_n(hold, __ATOMIC_RELAXED) ||
        !__atomic_exchange_n(hold, false, __ATOMIC_RELAXED))
        return;
    struct trimming trimming = {.device = device};
    memory_lock();
    table_each(&pools, trim, &trimming);
    memory_unlock();
}

void pools_close(const struct device *device)
{
    struct trimming trimming = {.device = device, .all = true};
    memory_lock();
    table_each(&pools, trim, &trimming);
    memory_unlock();
}

/* --- the default and the current pool ------------------------------------------------------ */

/* A default pool is there from the first time that somebody asks; lock held. */
static struct pool *default_pool(struct pool **place, const CUmemPoolProps *properties)
{
    if (*place == NULL) {
        *place = new_pool(properties);
        if (*place != NULL)
            (*place)->is_default = true;
    }
    return *place;
}

static struct pool *default_of_device(struct device *device)
{
    return default_pool(&device->default_pool, &(CUmemPoolProps){
                                                   .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                                .id = device->ordinal},
                                               });
}

CUresult pool_of_device(struct device *device, struct pool **pool)
{
    memory_lock();
    *pool = device->current_pool != NULL ? device->current_pool : default_of_device(device);
    memory_unlock();
    return *pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult answer(CUmemoryPool *handle, struct pool *pool)
{
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = pool_handle(pool);
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetDefaultMemPool(CUmemoryPool *handle, CUdevice ordinal)
{
    struct device *device = NULL;
    TRY(device_get(ordinal, &device));
    REQUIRE(handle != NULL);
    memory_lock();
    struct pool *pool = default_of_device(device);
    memory_unlock();
    return answer(handle, pool);
}

ENTRY cuDeviceGetMemPool(CUmemoryPool *handle, CUdevice ordinal)
{
    struct device *device = NULL;
    struct pool *pool = NULL;
    TRY(device_get(ordinal, &device));
    REQUIRE(handle != NULL);
    TRY(pool_of_device(device, &pool));
    return answer(handle, pool);
}

ENTRY cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle)
{
    struct device *device = NULL;
    struct pool *pool = NULL;
    TRY(device_get(ordinal, &device));
    TRY(pool_find(handle, &pool));
    REQUIRE(pool->device == device && !pool->is_imported);
    memory_lock();
    device->current_pool = pool;
    memory_unlock();
    return CUDA_SUCCESS;
}

/* The default pool of a place other than a device's own memory. */
static CUresult elsewhere(CUmemoryPool *handle, const CUmemLocation *location,
                          CUmemAllocationType type)
{
    const CUmemPoolProps properties = {.allocType = type, .location = *location};
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    TRY(check_properties(&properties));
    memory_lock();
    struct pool *pool = default_pool(managed ? &managed_pool : &host_pool, &properties);
    memory_unlock();
    return answer(handle, pool);
}

ENTRY cuMemGetDefaultMemPool(CUmemoryPool *handle, CUmemLocation *location,
                             CUmemAllocationType type)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && location != NULL);
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED)
        return cuDeviceGetDefaultMemPool(handle, location->id);
    return elsewhere(handle, location, type);
}

ENTRY cuMemGetMemPool(CUmemoryPool *handle, CUmemLocation *location, CUmemAllocationType type)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && location != NULL);
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED)
        return cuDeviceGetMemPool(handle, location->id);
    return elsewhere(handle, location, type);
}

/* Only devices have a current pool that differs from the default one. */
ENTRY cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool handle)
{
    TRY(driver_check());
    REQUIRE(location != NULL);
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuDeviceSetMemPool(location->id, handle);
}
