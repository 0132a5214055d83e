/* Memory pools, as the parts of the driver that share them see them. */
#pragma once

#include "memory.h"

struct pool {
    struct heap heap;
    CUmemPoolProps properties;
    struct device *device; /* NULL for pools of the host */
    bool is_default;
    bool is_imported;  /* another process's: addresses are imported one by one */
    bool is_destroyed; /* ends with the last of its allocations */
    uint64_t release_threshold;
    int reuse[3]; /* the attributes that allow reuse, in their order */
    CUmemAccess_flags access[SIM_DEVICES];
    size_t allocations;
};

/* A pool by its handle. */
CUresult pool_find(CUmemoryPool handle, struct pool **pool);

/* A new pool. Another process's pool has no memory of its own. */
CUresult pool_create(const CUmemPoolProps *properties, struct pool **pool);
CUresult pool_create_imported(const CUmemPoolProps *properties, struct pool **pool);

static inline CUmemoryPool pool_handle(const struct pool *pool)
{
    return (CUmemoryPool)(uintptr_t)pool;
}

/* The pool that cuMemAllocAsync takes from on the device. */
CUresult pool_of_device(struct device *device, struct pool **pool);

/* The pool that a piece was taken from, or NULL. */
CUmemoryPool pool_of_piece(const struct piece *piece);

/* Whether a piece is the host's memory, taken from a pool. */
bool pool_piece_is_host(const struct piece *piece);

/* Gives back what the pools of a device keep when its last context has ended. */
void pools_close(const struct device *device);

void pools_forget(void);
