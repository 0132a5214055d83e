/*
 * The list of pools, and settling what they are charged.
 */
#include "pool_list.h"

#include "device.h"
#include "private.h"
#include "spin.h"

static void *root;

struct pools *pools_lock(void)
{
    struct pools *pools = private_root(&root, sizeof *pools);
    if (pools != NULL)
        spin_lock(&pools->lock);
    return pools;
}

void pools_unlock(struct pools *pools)
{
    spin_unlock(&pools->lock);
}

struct pool *pool_find(struct pools *pools, CUmemoryPool handle)
{
    for (struct pool *pool = pools->list; pool < pools->list + pools->count; pool++)
        if (pool->handle == handle && pool->state != POOL_FREE && pool->state != POOL_DESTROYED)
            return pool;
    return NULL;
}

struct pool *pool_add(struct pools *pools, CUmemoryPool handle, enum pool_state state, int device)
{
    struct pool *pool = pools->list;
    while (pool < pools->list + pools->count && pool->state != POOL_FREE)
        pool++;
    if (pool == pools->list + MOST_POOLS)
        return NULL;
    if (pool == pools->list + pools->count)
        pools->count++;
    *pool = (struct pool){.handle = handle, .state = (uint16_t)state, .device = (int16_t)device};
    __atomic_store_n(&charge_has_slack, 1, __ATOMIC_RELAXED);
    return pool;
}

struct pool *pool_add_default(struct pools *pools, CUmemoryPool handle)
{
    CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE;
    int ordinal = -1;
    if (real.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type) != CUDA_SUCCESS ||
        real.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &ordinal) != CUDA_SUCCESS) {
        CUmemoryPool own = NULL;
        for (ordinal = 0; ordinal < DEVICES_MOST; ordinal++)
            if (device_of(ordinal) >= 0 &&
                real.cuDeviceGetDefaultMemPool(&own, ordinal) == CUDA_SUCCESS && own == handle)
                break;
        type = CU_MEM_LOCATION_TYPE_DEVICE;
    }
    if (type != CU_MEM_LOCATION_TYPE_DEVICE)
        return pool_add(pools, handle, POOL_ELSEWHERE, 0);
    int device = device_of(ordinal);
    if (device < 0)
        device = device_current();
    return device < 0 ? NULL : pool_add(pools, handle, POOL_CHARGED, device);
}

bool pool_ask(const struct pool *pool, CUmemPool_attribute attribute, uint64_t *bytes)
{
    return real.cuMemPoolGetAttribute(pool->handle, attribute, bytes) == CUDA_SUCCESS;
}

void pool_settle(struct pool *pool, uint64_t ahead)
{
    const uint64_t charged = pool->charged_bytes + ahead;
    uint64_t reserved = charged;
    pool_ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    if (reserved > charged)
        ledger_force((unsigned)pool->device, reserved - charged);
    else if (reserved < charged)
        ledger_release((unsigned)pool->device, charged - reserved);
    pool->charged_bytes = reserved;
}

void pools_settle(void)
{
    struct pools *pools = pools_lock();
    if (pools == NULL)
        return;
    for (struct pool *pool = pools->list; pool < pools->list + pools->count; pool++)
        if (pool->state == POOL_CHARGED)
            pool_settle(pool, 0);
    pools_unlock(pools);
}

void pools_trim(int device)
{
    struct pools *pools = pools_lock();
    if (pools == NULL)
        return;
    for (struct pool *pool = pools->list; pool < pools->list + pools->count; pool++) {
        uint64_t used = 0;
        if (pool->state == POOL_CHARGED && pool->device == device &&
            pool_ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && used < pool->charged_bytes) {
            (void)REAL(cuMemPoolTrimTo, pool->handle, 0);
            pool_settle(pool, 0);
        }
    }
    pools_unlock(pools);
}

void pool_end_if_empty(struct pool *pool)
{
    if (pool->state != POOL_DESTROYED || pool->live > 0)
        return;
    ledger_release((unsigned)pool->device, pool->charged_bytes);
    pool->state = POOL_FREE;
}
