/* Device memory: taken for a context, found by address, given back. */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>

#include "stream.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_id;

void memory_lock(void)
{
    pthread_mutex_lock(&lock);
}

void memory_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void memory_forget(void)
{
    space_forget();
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

uint64_t memory_next_id(void)
{
    return ++last_id;
}

CUresult memory_open(struct context *context)
{
    /* A primary context keeps its set while it is closed: green contexts point to it. */
    if (context->memory == NULL)
        context->memory = calloc(1, sizeof *context->memory);
    if (context->memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    heap_init(&context->memory->small, context->device->index, BLOCK_BYTES);
    return CUDA_SUCCESS;
}

void memory_close(struct context *context)
{
    memory_lock();
    while (context->memory->pieces != NULL)
        memory_drop(context->memory->pieces);
    memory_unlock();
    if (!context->is_primary) {
        free(context->memory);
        context->memory = NULL;
    }
}

void memory_file(struct context *context, struct piece *piece)
{
    /* Green contexts allocate in their device's primary one, which outlives them. */
    if (context->is_green)
        context = context->device->primary;
    piece->context = context;
    piece->device = (unsigned)context->device->ordinal;
    piece->previous = NULL;
    piece->next = context->memory->pieces;
    if (piece->next != NULL)
        piece->next->previous = piece;
    context->memory->pieces = piece;
}

static void unfile(struct piece *piece)
{
    if (piece->context == NULL)
        return;
    if (piece->next != NULL)
        piece->next->previous = piece->previous;
    if (piece->previous != NULL)
        piece->previous->next = piece->next;
    else
        piece->context->memory->pieces = piece->next;
}

CUresult memory_book(struct piece *piece, uint64_t bytes)
{
    const int error = sim_reserve(driver.devices[piece->device].index, bytes);
    if (error != 0)
        return error == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_DEVICE_UNAVAILABLE;
    piece->booked_bytes += bytes;
    return CUDA_SUCCESS;
}

void memory_unbook(struct piece *piece)
{
    if (piece->booked_bytes > 0)
        sim_release(driver.devices[piece->device].index, piece->booked_bytes);
    piece->booked_bytes = 0;
}

void memory_drop(struct piece *piece)
{
    unfile(piece);
    switch (piece->use) {
    case PIECE_MANAGED:
        managed_end(piece);
        break;
    case PIECE_POOLED:
        pooled_end(piece);
        return;
    case PIECE_RESERVED:
        reserved_end(piece);
        break;
    case PIECE_IMPORTED:
        free(piece->detail);
        space_renew(piece->start, piece->bytes);
        break;
    default:
        break;
    }
    if (piece->heap != NULL) {
        heap_give(piece->heap, piece);
        return;
    }
    memory_unbook(piece);
    if (piece->is_exported)
        exported_end(piece);
    space_unmark(piece);
    space_give(piece);
}

static CUresult take_addresses(struct context *context, size_t bytes, enum piece_use use,
                               void *detail, struct piece **piece)
{
    struct piece *fresh = space_take(bytes);
    if (fresh == NULL || !space_mark(fresh)) {
        if (fresh != NULL)
            space_give(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->use = use;
    fresh->detail = detail;
    fresh->wanted_bytes = bytes;
    fresh->buffer_id = memory_next_id();
    memory_file(context, fresh);
    *piece = fresh;
    return CUDA_SUCCESS;
}

CUresult memory_take_addresses(struct context *context, size_t bytes, enum piece_use use,
                               void *detail, struct piece **piece)
{
    memory_lock();
    const CUresult result = take_addresses(context, bytes, use, detail, piece);
    memory_unlock();
    return result;
}

static CUresult take_small(struct context *context, size_t bytes, struct piece **piece)
{
    struct piece *fresh = heap_take(&context->memory->small, bytes);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->wanted_bytes = bytes;
    fresh->buffer_id = memory_next_id();
    memory_file(context, fresh);
    *piece = fresh;
    return CUDA_SUCCESS;
}

static CUresult take_large(struct context *context, size_t bytes, struct piece **piece)
{
    struct piece *fresh = NULL;
    TRY(take_addresses(context, bytes, PIECE_DEVICE, NULL, &fresh));
    const CUresult result = memory_book(fresh, fresh->bytes);
    if (result != CUDA_SUCCESS)
        memory_drop(fresh);
    else
        *piece = fresh;
    return result;
}

CUresult memory_take(struct context *context, size_t bytes, struct piece **piece)
{
    const int fault = sim_fault(context->device->index, SIM_CALL_ALLOC);
    if (fault != 0)
        return (CUresult)fault;
    if (bytes > context->device->profile->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory_lock();
    const CUresult result =
        bytes < SMALL_BYTES ? take_small(context, bytes, piece) : take_large(context, bytes, piece);
    memory_unlock();
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        driver_log("out of memory on device %d: %zu bytes asked for, %llu free",
                   context->device->ordinal, bytes,
                   (unsigned long long)sim_free_bytes(context->device->index));
    return result;
}

bool memory_look_null(CUdeviceptr address, struct piece *piece)
{
    if (!space_covers(address))
        return false;
    const struct context *context = context_current();
    *piece = (struct piece){
        .start = address,
        .bytes = BLOCK_BYTES,
        .wanted_bytes = BLOCK_BYTES,
        .use = PIECE_DEVICE,
        .context = context_current(),
        .device = context != NULL ? (unsigned)context->device->ordinal : 0,
    };
    return true;
}

bool memory_look(CUdeviceptr address, struct piece *piece)
{
    if (driver.null_mode)
        return memory_look_null(address, piece);
    memory_lock();
    const struct piece *found = space_find(address);
    bool known = found != NULL;
    if (known)
        *piece = *found;
    if (known && found->use == PIECE_RESERVED)
        known = reserved_narrow(piece, address);
    memory_unlock();
    return known;
}

static bool piece_spans(const struct piece *piece, uint64_t address, uint64_t bytes)
{
    if (piece->use == PIECE_RESERVED)
        return reserved_holds(piece, address, bytes);
    const uint64_t offset = address - piece->start;
    return offset <= piece->wanted_bytes && bytes <= piece->wanted_bytes - offset;
}

bool memory_spans(CUdeviceptr address, size_t bytes)
{
    if (driver.null_mode && space_covers(address))
        return true;
    memory_lock();
    const struct piece *piece = space_find(address);
    const bool spans = piece != NULL && piece_spans(piece, address, bytes);
    memory_unlock();
    return spans || (piece == NULL && host_holds(address, bytes));
}

bool memory_holds(CUdeviceptr address, size_t bytes)
{
    memory_lock();
    const struct piece *piece = space_find(address);
    const bool pending = piece != NULL && piece->use == PIECE_GRAPH && piece->booked_bytes == 0;
    memory_unlock();
    return !pending && memory_spans(address, bytes);
}

static CUresult free_locked(CUdeviceptr address, unsigned allowed)
{
    struct piece *piece = space_find(address);
    if (piece == NULL || piece->start != address || (allowed >> piece->use & 1) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    memory_drop(piece);
    return CUDA_SUCCESS;
}

CUresult memory_free_address(CUdeviceptr address, unsigned allowed)
{
    memory_lock();
    const CUresult result = free_locked(address, allowed);
    memory_unlock();
    return result;
}

/* --- for the other half of the driver ------------------------------------------------------ */

CUresult memory_allocate(struct context *context, size_t bytes, CUdeviceptr *address)
{
    struct piece *piece = NULL;
    if (driver.null_mode) {
        *address = space_next(bytes);
        return CUDA_SUCCESS;
    }
    TRY(memory_take(context, bytes, &piece));
    *address = piece->start;
    return CUDA_SUCCESS;
}

void memory_free(struct context *context, CUdeviceptr address)
{
    (void)context;
    if (!driver.null_mode)
        memory_free_address(address, 1U << PIECE_DEVICE);
}

CUresult graph_memory_reserve(struct context *context, size_t bytes, CUdeviceptr *address)
{
    struct piece *piece = NULL;
    if (bytes > context->device->profile->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(memory_take_addresses(context, bytes, PIECE_GRAPH, NULL, &piece));
    *address = piece->start;
    return CUDA_SUCCESS;
}

/* A graph's piece by its address; it may have ended with its context. */
static struct piece *graph_piece(CUdeviceptr address)
{
    struct piece *piece = space_find(address);
    return piece != NULL && piece->use == PIECE_GRAPH && piece->start == address ? piece : NULL;
}

CUresult graph_memory_book(struct context *context, CUdeviceptr address)
{
    (void)context;
    memory_lock();
    struct piece *piece = graph_piece(address);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (piece != NULL)
        result = piece->booked_bytes > 0 ? CUDA_SUCCESS : memory_book(piece, piece->bytes);
    memory_unlock();
    return result;
}

void graph_memory_unbook(struct context *context, CUdeviceptr address)
{
    (void)context;
    memory_lock();
    struct piece *piece = graph_piece(address);
    if (piece != NULL)
        memory_unbook(piece);
    memory_unlock();
}

void graph_memory_release(struct context *context, CUdeviceptr address)
{
    (void)context;
    memory_free_address(address, 1U << PIECE_GRAPH);
}
