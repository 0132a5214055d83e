/*
 * Allocations by address: cuMemAlloc and its kin.
 *
 * The driver takes memory from the device in blocks of 2 MiB. A large allocation has blocks of its
 * own; small ones of a context share blocks, and which one an allocation got is known by its
 * address. So the account is kept by block: its first holder is charged for it, its last one gets
 * it back, and what the container is charged is what the device has lost. Before the driver is
 * asked, an allocation is taken for the first in its block; if it was not, the block is returned.
 */
#include "allocations.h"
#include "blocks.h"
#include "charge.h"
#include "device.h"
#include "pool.h"

/*
 * Allocations that have no note: beyond 48 bits of addresses, or of several blocks and not
 * beginning with one. No driver has been seen to make any.
 */
static uint32_t odd_ones;

COLD static CUresult undo(CUdeviceptr address, uint64_t charge, int device)
{
    charge_return(device, charge);
    (void)REAL(cuMemFree_v2, address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_odd(CUdeviceptr address, uint64_t charge)
{
    return (address & (BLOCK_BYTES - 1)) != 0 && charge > BLOCK_BYTES;
}

COLD static CUresult book_slowly(CUdeviceptr address, uint64_t charge, int device)
{
    uint64_t *note = is_odd(address, charge) ? NULL : block_note_made(address);
    if (note != NULL) {
        if (!block_join(note, thread.note + (charge << (NOTE_BLOCKS_SHIFT - BLOCK_SHIFT))))
            charge_return(device, charge);
        return CUDA_SUCCESS;
    }
    if (allocation_join(KIND_ADDRESS, address, charge, device, thread.owner) == STANDING_NONE)
        return undo(address, charge, device);
    __atomic_fetch_add(&odd_ones, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

/* Books a fresh allocation for which `charge` was taken. */
static inline CUresult book(CUdeviceptr address, uint64_t charge, int device)
{
    uint64_t *note = block_note(address);
    if (UNLIKELY(note == NULL || is_odd(address, charge)))
        return book_slowly(address, charge, device);
    if (!block_join(note, thread.note + (charge << (NOTE_BLOCKS_SHIFT - BLOCK_SHIFT))))
        charge_return(device, charge);
    return CUDA_SUCCESS;
}

COLD static CUresult give_up(CUresult result, uint64_t charge, int device)
{
    charge_return(device, charge);
    return result;
}

/* What all allocating calls have in common; `address` is what the driver has written there. */
#define ALLOCATES(name, bytes, parameters, ...)                                                    \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        const int device = device_current();                                                       \
        if (UNLIKELY(device < 0))                                                                  \
            return device == DEVICE_NONE ? real.name(__VA_ARGS__) : CUDA_ERROR_OUT_OF_MEMORY;      \
        const uint64_t charge = charge_of(bytes);                                                  \
        if (UNLIKELY(!charge_take(device, charge)))                                                \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        if (UNLIKELY(result != CUDA_SUCCESS))                                                      \
            return give_up(result, charge, device);                                                \
        return book(*address, charge, device);                                                     \
    }
ALLOCATES(cuMemAlloc_v2, bytes, (CUdeviceptr * address, size_t bytes), address, bytes)
ALLOCATES(cuMemAlloc, bytes, (CUdeviceptr_v1 * address, unsigned bytes), address, bytes)
ALLOCATES(cuMemAllocManaged, bytes, (CUdeviceptr * address, size_t bytes, unsigned flags), address,
          bytes, flags)

/* --- pitch --------------------------------------------------------------------------------- */

/* What rows will take if the driver aligns them as it is known to; the real pitch decides. */
static uint64_t pitched_ahead(uint64_t width_bytes, uint64_t height)
{
    enum { USUAL_ALIGNMENT = 512 };
    const uint64_t row = (width_bytes + USUAL_ALIGNMENT - 1) & ~(uint64_t)(USUAL_ALIGNMENT - 1);
    uint64_t bytes;
    if (row < width_bytes || __builtin_mul_overflow(row, height, &bytes))
        return CHARGE_IMPOSSIBLE;
    return charge_of(bytes);
}

static CUresult book_pitched(CUdeviceptr address, uint64_t bytes, uint64_t ahead, int device)
{
    const uint64_t charge = charge_of(bytes);
    if (charge_correct(device, ahead, charge))
        return book(address, charge, device);
    (void)REAL(cuMemFree_v2, address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define ALLOCATES_PITCHED(name, parameters, ...)                                                   \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        const int device = device_current();                                                       \
        if (device == DEVICE_NONE)                                                                 \
            return real.name(__VA_ARGS__);                                                         \
        const uint64_t ahead = pitched_ahead(width_bytes, height);                                 \
        if (!charge_take(device, ahead))                                                           \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        if (result != CUDA_SUCCESS)                                                                \
            return give_up(result, ahead, device);                                                 \
        return book_pitched(*address, (uint64_t)*pitch * height, ahead, device);                   \
    }
ALLOCATES_PITCHED(cuMemAllocPitch_v2,
                  (CUdeviceptr * address, size_t *pitch, size_t width_bytes, size_t height,
                   unsigned element_bytes),
                  address, pitch, width_bytes, height, element_bytes)
ALLOCATES_PITCHED(cuMemAllocPitch,
                  (CUdeviceptr_v1 * address, unsigned *pitch, unsigned width_bytes, unsigned height,
                   unsigned element_bytes),
                  address, pitch, width_bytes, height, element_bytes)

/* --- freeing ------------------------------------------------------------------------------- */

/* An allocation without a note, or a pool's. */
COLD static CUresult free_elsewhere(CUdeviceptr address)
{
    struct allocation odd;
    if (__atomic_load_n(&odd_ones, __ATOMIC_RELAXED) != 0 &&
        allocation_leave(KIND_ADDRESS, address, &odd) != STANDING_NONE) {
        const CUresult result = REAL(cuMemFree_v2, address);
        if (result == CUDA_SUCCESS)
            charge_return(odd.device, odd.bytes);
        else
            allocation_join(KIND_ADDRESS, address, odd.bytes, odd.device, odd.owner);
        return result;
    }
    struct pooled pooled;
    pooled_leave(&pooled, address);
    return pooled_finish(&pooled, address, REAL(cuMemFree_v2, address));
}

/* The driver did not free after all: back to the block that was left, with what it said then. */
COLD static CUresult come_back(CUresult result, CUdeviceptr address, uint64_t left)
{
    const uint64_t alone = (left & ~(uint64_t)NOTE_HOLDERS) | 1;
    /* Somebody was first in the block meanwhile, and was charged for it. */
    if (!block_join(block_note(address), alone) && note_is_last(left))
        charge_return(note_device(left), note_bytes(left));
    return result;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(cuMemFree_v2, address);
    uint64_t *note = block_note(address);
    /*
     * Let go before the driver frees: as soon as it has, another thread may be given the same
     * address, and what is forgotten then would be that thread's.
     */
    const uint64_t left = LIKELY(note != NULL) ? block_leave(note) : 0;
    if (UNLIKELY(left == 0))
        return free_elsewhere(address);
    const CUresult result = REAL(cuMemFree_v2, address);
    if (UNLIKELY(result != CUDA_SUCCESS))
        return come_back(result, address, left);
    if (note_is_last(left))
        charge_return(note_device(left), note_bytes(left));
    return CUDA_SUCCESS;
}

/* From the time of 32-bit addresses: the same, narrowed. */
EXPORT CUresult cuMemFree(CUdeviceptr_v1 address)
{
    ENTER(cuMemFree, address);
    return cuMemFree_v2(address);
}
