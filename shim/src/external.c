/*
 * Memory of other interfaces (Vulkan, DMA buffers): charged while it is imported, because nobody
 * else in the container has been.
 */
#include "allocations.h"
#include "charge.h"
#include "device.h"

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    ENTER(cuImportExternalMemory, memory, description);
    const int device = device_current();
    if (device == DEVICE_NONE || description == NULL)
        return real.cuImportExternalMemory(memory, description);
    const uint64_t charge = charge_of(description->size);
    if (!charge_take(device, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = REAL(cuImportExternalMemory, memory, description);
    if (result != CUDA_SUCCESS) {
        charge_return(device, charge);
        return result;
    }
    if (allocation_join(KIND_EXTERNAL, (uintptr_t)*memory, charge, device, thread.owner) !=
        STANDING_NONE)
        return CUDA_SUCCESS;
    charge_return(device, charge);
    (void)REAL(cuDestroyExternalMemory, *memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    ENTER(cuDestroyExternalMemory, memory);
    struct allocation allocation;
    const enum standing standing = allocation_leave(KIND_EXTERNAL, (uintptr_t)memory, &allocation);
    const CUresult result = REAL(cuDestroyExternalMemory, memory);
    if (standing == STANDING_NONE)
        return result;
    if (result == CUDA_SUCCESS)
        charge_return(allocation.device, allocation.bytes);
    else
        allocation_join(KIND_EXTERNAL, (uintptr_t)memory, allocation.bytes, allocation.device,
                        allocation.owner);
    return result;
}
