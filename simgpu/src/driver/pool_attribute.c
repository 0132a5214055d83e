/* What can be set and asked of a pool. */
#include "pool.h"

/* One attribute as a number, whichever of the two sizes it has. */
struct value {
    bool is_wide;
    uint64_t number;
};

static bool look_up(const struct pool *pool, CUmemPool_attribute attribute, struct value *value)
{
    const struct heap *heap = &pool->heap;
    const CUmemPoolProps *properties = &pool->properties;
    const bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const int place = on_device ? properties->location.id : CU_DEVICE_INVALID;
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        value->number = (unsigned)pool->reuse[attribute - 1];
        return true;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *value = (struct value){true, pool->release_threshold};
        return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *value = (struct value){true, heap->booked_bytes};
        return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *value = (struct value){true, heap->booked_high};
        return true;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *value = (struct value){true, heap->used_bytes};
        return true;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *value = (struct value){true, heap->used_high};
        return true;
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
        value->number = properties->allocType;
        return true;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
        value->number = pool->is_imported ? CU_MEM_HANDLE_TYPE_NONE : properties->handleTypes;
        return true;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
        value->number = (uint64_t)place;
        return true;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
        value->number = properties->location.type;
        return true;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        *value = (struct value){true, properties->maxSize > 0 ? heap->most_bytes : 0};
        return true;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        value->number = 0;
        return true;
    case CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID:
        value->number = (uint64_t)-1;
        return true;
    default:
        return false;
    }
}

ENTRY cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *data)
{
    struct pool *pool = NULL;
    struct value value = {.is_wide = false};
    TRY(pool_find(handle, &pool));
    REQUIRE(data != NULL);
    memory_lock();
    const bool known = look_up(pool, attribute, &value);
    memory_unlock();
    REQUIRE(known);
    if (value.is_wide)
        *(cuuint64_t *)data = value.number;
    else
        *(int *)data = (int)value.number;
    return CUDA_SUCCESS;
}

static CUresult set(struct pool *pool, CUmemPool_attribute attribute, const void *data)
{
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - 1] = *(const int *)data != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *(const cuuint64_t *)data;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        REQUIRE(*(const cuuint64_t *)data == 0);
        pool->heap.booked_high = pool->heap.booked_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        REQUIRE(*(const cuuint64_t *)data == 0);
        pool->heap.used_high = pool->heap.used_bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

ENTRY cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *data)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    REQUIRE(data != NULL);
    memory_lock();
    const CUresult result = set(pool, attribute, data);
    memory_unlock();
    return result;
}

/* --- access -------------------------------------------------------------------------------- */

static CUresult check_access(const struct pool *pool, const CUmemAccessDesc *wanted)
{
    const int id = wanted->location.id;
    if (wanted->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        wanted->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return pool->heap.is_free ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    REQUIRE(wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    if (id < 0 || (unsigned)id >= driver.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    REQUIRE(wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
            wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
            wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const struct device *device = &driver.devices[id];
    /* A device always reaches its own memory. */
    if (device == pool->device)
        return wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_VALUE;
    if (pool->device != NULL && !device_reaches(device, pool->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *descriptions, size_t count)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    REQUIRE(descriptions != NULL && count > 0);
    for (size_t number = 0; number < count; number++)
        TRY(check_access(pool, &descriptions[number]));
    memory_lock();
    for (size_t number = 0; number < count; number++) {
        if (descriptions[number].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            pool->access[descriptions[number].location.id] = descriptions[number].flags;
    }
    memory_unlock();
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    REQUIRE(flags != NULL && location != NULL);
    if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
        location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        *flags =
            pool->heap.is_free ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    }
    struct device *device = NULL;
    REQUIRE(location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    TRY(device_get(location->id, &device));
    *flags = pool->access[location->id];
    return CUDA_SUCCESS;
}
