/*
 * The pools that this process has used, and what each is charged.
 */
#pragma once

#include "pool.h"

enum { MOST_POOLS = 2047 };

enum pool_state {
    POOL_FREE,
    POOL_CHARGED,
    POOL_ELSEWHERE, /* host memory, or imported: charged to nobody here */
    POOL_DESTROYED, /* until its last allocation is freed */
};

struct pool {
    CUmemoryPool handle;
    uint64_t charged_bytes;
    uint32_t live; /* allocations */
    uint16_t state;
    int16_t device;
};

struct pools {
    uint32_t lock;
    uint32_t count;
    struct pool list[MOST_POOLS];
};

/* The list, locked; NULL when there is no memory for one. */
struct pools *pools_lock(void);
void pools_unlock(struct pools *pools);

/* What follows is called with the list locked. */

/* A pool that can be asked, or NULL. */
struct pool *pool_find(struct pools *pools, CUmemoryPool handle);

/* NULL when the list is full. */
struct pool *pool_add(struct pools *pools, CUmemoryPool handle, enum pool_state state, int device);

/* Adds a pool that was there without being created: a device's own, or the host's. */
struct pool *pool_add_default(struct pools *pools, CUmemoryPool handle);

/* One of the pool's numbers of bytes, if the driver tells it. */
bool pool_ask(const struct pool *pool, CUmemPool_attribute attribute, uint64_t *bytes);

/* Charges what the pool has reserved. `ahead` has been taken for it already. */
void pool_settle(struct pool *pool, uint64_t ahead);

/* Returns what is left of a destroyed pool, which cannot be asked any more, if that is nothing. */
void pool_end_if_empty(struct pool *pool);
