/* Allocations in the order of streams: taken from a pool at once, freed when the stream gets there.
 */
#include <string.h>

#include "ipc.h"
#include "pool.h"
#include "stream.h"

/* --- allocating ---------------------------------------------------------------------------- */

static struct piece *take(struct pool *pool, size_t bytes)
{
    struct piece *piece = heap_take(&pool->heap, bytes);
    if (piece == NULL) {
        /* Empty chunks that are too short may make room for one that is not. */
        heap_trim(&pool->heap, 0);
        piece = heap_take(&pool->heap, bytes);
    }
    return piece;
}

static CUresult take_for(struct context *context, struct pool *pool, size_t bytes,
                         CUdeviceptr *address)
{
    const unsigned device = pool->device != NULL ? pool->device->index : context->device->index;
    const int fault = sim_fault(device, SIM_CALL_ALLOC);
    if (fault != 0)
        return (CUresult)fault;
    if (pool->device != NULL && bytes > pool->device->profile->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory_lock();
    struct piece *piece = bytes <= SIZE_MAX / 2 ? take(pool, bytes) : NULL;
    if (piece != NULL) {
        piece->use = PIECE_POOLED;
        piece->detail = pool;
        piece->wanted_bytes = bytes;
        piece->buffer_id = memory_next_id();
        memory_file(context, piece);
        if (pool->device != NULL)
            piece->device = (unsigned)pool->device->ordinal;
        pool->allocations++;
        *address = piece->start;
    }
    memory_unlock();
    return piece != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, struct pool *pool, CUstream stream,
                         enum default_stream null_means)
{
    struct context *context = NULL;
    bool capturing = false;
    REQUIRE(address != NULL && bytes > 0);
    TRY(stream_context(stream, null_means, &context));
    if (pool == NULL)
        TRY(pool_of_device(context->device, &pool));
    REQUIRE(!pool->is_imported);
    TRY(stream_capturing(stream, null_means, &capturing));
    if (capturing)
        return capture_memory_alloc(stream, null_means, &pool->properties, bytes, address);
    if (driver.null_mode) {
        *address = space_next((bytes + 511) & ~(size_t)511);
        return CUDA_SUCCESS;
    }
    return take_for(context, pool, bytes, address);
}

ENTRY cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(address, bytes, NULL, stream, DEFAULT_LEGACY);
}

ENTRY cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(address, bytes, NULL, stream, DEFAULT_PER_THREAD);
}

ENTRY cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool handle,
                              CUstream stream)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    return allocate(address, bytes, pool, stream, DEFAULT_LEGACY);
}

ENTRY cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool handle,
                                   CUstream stream)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    return allocate(address, bytes, pool, stream, DEFAULT_PER_THREAD);
}

/* --- freeing ------------------------------------------------------------------------------- */

/* The id tells whether the address still is what it was: its context may have ended meanwhile. */
struct leaving {
    CUdeviceptr address;
    uint64_t buffer_id;
};

static void leave_run(struct context *context, void *arguments)
{
    (void)context;
    const struct leaving *leaving = arguments;
    memory_lock();
    struct piece *piece = space_find(leaving->address);
    if (piece != NULL && piece->buffer_id == leaving->buffer_id) {
        if (piece->use == PIECE_GRAPH) {
            memory_unbook(piece);
            piece->is_leaving = false;
        } else {
            memory_drop(piece);
        }
    }
    memory_unlock();
}

static void close_run(struct context *context, void *arguments)
{
    (void)context;
    ipc_close(((const struct leaving *)arguments)->address, IPC_POOLED);
}

/* Marks what an address stands for as leaving; false for what cannot leave, or is leaving. */
static bool announce(CUdeviceptr address, struct leaving *leaving)
{
    const unsigned allowed = 1U << PIECE_POOLED | 1U << PIECE_GRAPH;
    memory_lock();
    struct piece *piece = space_find(address);
    bool may = piece != NULL && piece->start == address && !piece->is_leaving &&
               (allowed >> piece->use & 1) != 0;
    if (may && piece->use == PIECE_GRAPH)
        may = piece->booked_bytes > 0;
    if (may) {
        piece->is_leaving = true;
        *leaving = (struct leaving){address, piece->buffer_id};
    }
    memory_unlock();
    return may;
}

static void take_back(CUdeviceptr address)
{
    memory_lock();
    struct piece *piece = space_find(address);
    if (piece != NULL)
        piece->is_leaving = false;
    memory_unlock();
}

static CUresult free_on(CUdeviceptr address, CUstream stream, enum default_stream null_means)
{
    struct context *context = NULL;
    bool capturing = false;
    struct leaving leaving;
    TRY(stream_context(stream, null_means, &context));
    TRY(stream_capturing(stream, null_means, &capturing));
    if (capturing)
        return capture_memory_free(stream, null_means, address);
    if (address == 0)
        return CUDA_SUCCESS;
    if (driver.null_mode)
        return space_covers(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    struct operation operation = {.run = leave_run, .node_type = CU_GRAPH_NODE_TYPE_EMPTY};
    if (ipc_is_pooled(address)) {
        operation.run = close_run;
        leaving = (struct leaving){.address = address};
    } else if (!announce(address, &leaving)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(operation.arguments, &leaving, sizeof leaving);
    const CUresult result = stream_submit(stream, null_means, &operation);
    if (result != CUDA_SUCCESS)
        take_back(address);
    return result;
}

ENTRY cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return free_on(address, stream, DEFAULT_LEGACY);
}

ENTRY cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return free_on(address, stream, DEFAULT_PER_THREAD);
}
