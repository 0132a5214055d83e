/* cuMemAlloc and its kin: whole allocations of the current context. */
#include "host.h"
#include "ipc.h"
#include "memory.h"
#include "stream.h"

/* Rows of a pitched allocation begin where copies and textures like them to. */
enum { PITCH_BYTES = 512, NULL_MODE_UNIT = 512 };

__attribute__((noinline)) static CUresult allocate(struct context *context, CUdeviceptr *address,
                                                   size_t bytes)
{
    struct piece *piece = NULL;
    TRY(capture_refuse_unsafe());
    TRY(memory_take(context, bytes, &piece));
    *address = piece->start;
    return CUDA_SUCCESS;
}

ENTRY cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    ENTER(context);
    REQUIRE(address != NULL && bytes > 0);
    if (LIKELY(!driver.null_mode))
        return allocate(context, address, bytes);
    *address = space_next((bytes + NULL_MODE_UNIT - 1) & ~(size_t)(NULL_MODE_UNIT - 1));
    return CUDA_SUCCESS;
}

ENTRY cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes, size_t height,
                         unsigned element_bytes)
{
    ENTER(context);
    REQUIRE(address != NULL && pitch != NULL && width_bytes > 0 && height > 0);
    REQUIRE(element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
    REQUIRE(width_bytes <= SIZE_MAX - PITCH_BYTES);
    const size_t row_bytes = (width_bytes + PITCH_BYTES - 1) & ~(size_t)(PITCH_BYTES - 1);
    size_t bytes = 0;
    if (__builtin_mul_overflow(row_bytes, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(cuMemAlloc_v2(address, bytes));
    *pitch = row_bytes;
    return CUDA_SUCCESS;
}

/* Frees what is left when all queued work that may use it is done, as the hardware's driver. */
static CUresult free_after_work(CUdeviceptr address)
{
    const unsigned allowed =
        1U << PIECE_DEVICE | 1U << PIECE_POOLED | 1U << PIECE_MANAGED | 1U << PIECE_IMPORTED;
    struct piece piece;
    if (!memory_look(address, &piece))
        return CUDA_ERROR_INVALID_VALUE;
    if (piece.use == PIECE_IMPORTED && piece.detail != NULL) {
        TRY(streams_wait(piece.context));
        return ipc_close(address, IPC_POOLED);
    }
    if (piece.start != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (piece.use == PIECE_GRAPH) {
        if (piece.booked_bytes == 0)
            return CUDA_ERROR_INVALID_VALUE;
        TRY(streams_wait(piece.context));
        graph_memory_unbook(piece.context, address);
        return CUDA_SUCCESS;
    }
    if ((allowed >> piece.use & 1) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (piece.context != NULL)
        TRY(streams_wait(piece.context));
    return memory_free_address(address, allowed);
}

__attribute__((noinline)) static CUresult free_memory(CUdeviceptr address)
{
    TRY(capture_refuse_unsafe());
    return address == 0 ? CUDA_SUCCESS : free_after_work(address);
}

ENTRY cuMemFree_v2(CUdeviceptr address)
{
    ENTER(context);
    if (LIKELY(!driver.null_mode))
        return free_memory(address);
    return address == 0 || space_covers(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER(context);
    REQUIRE(free != NULL && total != NULL);
    const struct device *device = context->device;
    *total = device->profile->memory_bytes;
    if (LIKELY(!driver.null_mode))
        *free = sim_free_bytes(device->index);
    else
        *free = device->profile->memory_bytes - device->profile->context_bytes;
    return CUDA_SUCCESS;
}

/* From the time of 32-bit sizes: as much as fits. */
ENTRY cuMemGetInfo(unsigned *free, unsigned *total)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    REQUIRE(free != NULL && total != NULL);
    TRY(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    *free = free_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)free_bytes;
    *total = total_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)total_bytes;
    return CUDA_SUCCESS;
}

/* Of device memory, and of host memory that devices reach. */
static bool range_of(CUdeviceptr address, CUdeviceptr *start, size_t *bytes)
{
    struct piece piece;
    struct host_range range;
    if (memory_look(address, &piece) && address - piece.start < piece.wanted_bytes) {
        *start = piece.start;
        *bytes = piece.wanted_bytes;
        return true;
    }
    if (!host_look(address, &range))
        return false;
    *start = range.start;
    *bytes = range.bytes;
    return true;
}

ENTRY cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    ENTER(context);
    CUdeviceptr found_start = 0;
    size_t found_bytes = 0;
    if (!range_of(address, &found_start, &found_bytes))
        return CUDA_ERROR_NOT_FOUND;
    if (base != NULL)
        *base = found_start;
    if (bytes != NULL)
        *bytes = found_bytes;
    return CUDA_SUCCESS;
}
