/*
 * Allocations by address: cuMemAlloc and its kin, and memory of other interfaces.
 *
 * The driver takes memory from the device in blocks of 2 MiB. A large allocation has blocks of its
 * own; small ones of a context share blocks, and which one an allocation got is known by its
 * address. So the account is kept by block: its first holder is charged for it, its last one gets
 * it back, and what the container is charged is what the device has lost. Before the driver is
 * asked, an allocation is taken for the first in its block; if it was not, the block is returned.
 */
#include "allocations.h"
#include "charge.h"
#include "device.h"
#include "pool.h"

static inline uint64_t block_of(CUdeviceptr address)
{
    return address >> BLOCK_SHIFT;
}

/* Allocations of several blocks that do not begin with one; no driver has been seen to do that. */
static uint32_t misaligned;

static bool is_misaligned(CUdeviceptr address, uint64_t charge)
{
    return charge > BLOCK_BYTES && (address & (BLOCK_BYTES - 1)) != 0;
}

static bool remember_misaligned(CUdeviceptr address, uint64_t charge, int device)
{
    __atomic_fetch_add(&misaligned, 1, __ATOMIC_RELAXED);
    return allocation_join(KIND_ADDRESS, address, charge, device, thread.owner) != STANDING_NONE;
}

/* Remembers a fresh allocation for which `charge` was taken; false without memory for that. */
static inline bool remember(CUdeviceptr address, uint64_t charge, int device)
{
    if (UNLIKELY(is_misaligned(address, charge)))
        return remember_misaligned(address, charge, device);
    const enum standing standing =
        allocation_join(KIND_BLOCK, block_of(address), charge, device, thread.owner);
    if (standing == STANDING_SHARED)
        charge_return(device, charge);
    return standing != STANDING_NONE;
}

/* The end of every allocating replacement: books what the driver gave, or undoes all of it. */
static inline CUresult settle(CUresult result, CUdeviceptr address, uint64_t charge, int device)
{
    if (UNLIKELY(result != CUDA_SUCCESS)) {
        charge_return(device, charge);
        return result;
    }
    if (LIKELY(remember(address, charge, device)))
        return CUDA_SUCCESS;
    charge_return(device, charge);
    REAL(cuMemFree_v2, address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    ENTER(cuMemAlloc_v2, address, bytes);
    const int device = device_current();
    if (UNLIKELY(device == DEVICE_NONE))
        return real.cuMemAlloc_v2(address, bytes);
    const uint64_t charge = charge_of(bytes);
    if (UNLIKELY(!charge_take(device, charge)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = REAL(cuMemAlloc_v2, address, bytes);
    return settle(result, result == CUDA_SUCCESS ? *address : 0, charge, device);
}

EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned bytes)
{
    ENTER(cuMemAlloc, address, bytes);
    const int device = device_current();
    if (device == DEVICE_NONE)
        return real.cuMemAlloc(address, bytes);
    const uint64_t charge = charge_of(bytes);
    if (!charge_take(device, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = REAL(cuMemAlloc, address, bytes);
    return settle(result, result == CUDA_SUCCESS ? *address : 0, charge, device);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    ENTER(cuMemAllocManaged, address, bytes, flags);
    const int device = device_current();
    if (device == DEVICE_NONE)
        return real.cuMemAllocManaged(address, bytes, flags);
    const uint64_t charge = charge_of(bytes);
    if (!charge_take(device, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = REAL(cuMemAllocManaged, address, bytes, flags);
    return settle(result, result == CUDA_SUCCESS ? *address : 0, charge, device);
}

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

static CUresult settle_pitched(CUresult result, CUdeviceptr address, uint64_t bytes, uint64_t ahead,
                               int device)
{
    const uint64_t charge = result == CUDA_SUCCESS ? charge_of(bytes) : ahead;
    if (result == CUDA_SUCCESS && !charge_correct(device, ahead, charge)) {
        REAL(cuMemFree_v2, address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return settle(result, address, charge, device);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                                   size_t height, unsigned element_bytes)
{
    ENTER(cuMemAllocPitch_v2, address, pitch, width_bytes, height, element_bytes);
    const int device = device_current();
    if (device == DEVICE_NONE)
        return real.cuMemAllocPitch_v2(address, pitch, width_bytes, height, element_bytes);
    const uint64_t ahead = pitched_ahead(width_bytes, height);
    if (!charge_take(device, ahead))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result =
        REAL(cuMemAllocPitch_v2, address, pitch, width_bytes, height, element_bytes);
    if (result != CUDA_SUCCESS)
        return settle_pitched(result, 0, 0, ahead, device);
    return settle_pitched(result, *address, *pitch * height, ahead, device);
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width_bytes,
                                unsigned height, unsigned element_bytes)
{
    ENTER(cuMemAllocPitch, address, pitch, width_bytes, height, element_bytes);
    const int device = device_current();
    if (device == DEVICE_NONE)
        return real.cuMemAllocPitch(address, pitch, width_bytes, height, element_bytes);
    const uint64_t ahead = pitched_ahead(width_bytes, height);
    if (!charge_take(device, ahead))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result =
        REAL(cuMemAllocPitch, address, pitch, width_bytes, height, element_bytes);
    if (result != CUDA_SUCCESS)
        return settle_pitched(result, 0, 0, ahead, device);
    return settle_pitched(result, *address, (uint64_t)*pitch * height, ahead, device);
}

/* --- freeing ------------------------------------------------------------------------------- */

/* What is known of an address that is about to be freed. */
struct leaving {
    enum standing standing;
    enum kind kind;
    uint64_t key;
    struct allocation allocation;
};

/*
 * Lets go before the driver frees: as soon as it has, another thread may be given the same address,
 * and what is forgotten then would be that thread's.
 */
static inline void leave(struct leaving *leaving, CUdeviceptr address)
{
    leaving->kind = KIND_BLOCK;
    leaving->key = block_of(address);
    if (UNLIKELY(__atomic_load_n(&misaligned, __ATOMIC_RELAXED) != 0)) {
        leaving->standing = allocation_leave(KIND_ADDRESS, address, &leaving->allocation);
        if (leaving->standing != STANDING_NONE) {
            leaving->kind = KIND_ADDRESS;
            leaving->key = address;
            __atomic_fetch_sub(&misaligned, 1, __ATOMIC_RELAXED);
            return;
        }
    }
    leaving->standing = allocation_leave(KIND_BLOCK, leaving->key, &leaving->allocation);
}

/* The driver did not free after all. */
static void come_back(const struct leaving *leaving)
{
    const struct allocation *allocation = &leaving->allocation;
    if (leaving->standing == STANDING_NONE)
        return;
    if (leaving->kind == KIND_ADDRESS)
        __atomic_fetch_add(&misaligned, 1, __ATOMIC_RELAXED);
    /* Somebody was first in the block meanwhile, and charged for it. */
    if (allocation_join(leaving->kind, leaving->key, allocation->bytes, allocation->device,
                        allocation->owner) == STANDING_SHARED &&
        leaving->standing == STANDING_ALONE)
        charge_return(allocation->device, allocation->bytes);
}

static inline CUresult finish(CUresult result, const struct leaving *leaving)
{
    if (UNLIKELY(result != CUDA_SUCCESS))
        come_back(leaving);
    else if (leaving->standing == STANDING_ALONE)
        charge_return(leaving->allocation.device, leaving->allocation.bytes);
    return result;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(cuMemFree_v2, address);
    struct leaving leaving;
    leave(&leaving, address);
    if (UNLIKELY(leaving.standing == STANDING_NONE)) {
        struct pooled pooled;
        pooled_leave(&pooled, address);
        return pooled_finish(&pooled, address, REAL(cuMemFree_v2, address));
    }
    return finish(REAL(cuMemFree_v2, address), &leaving);
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 address)
{
    ENTER(cuMemFree, address);
    struct leaving leaving;
    leave(&leaving, address);
    if (leaving.standing == STANDING_NONE) {
        struct pooled pooled;
        pooled_leave(&pooled, address);
        return pooled_finish(&pooled, address, REAL(cuMemFree, address));
    }
    return finish(REAL(cuMemFree, address), &leaving);
}
