/*
 * What programs are told of a device's memory: their slice of it.
 */
#include "charge.h"
#include "device.h"

static size_t smaller(uint64_t one, uint64_t other)
{
    return (size_t)(one < other ? one : other);
}

COLD static CUresult info_elsewhere(int device, size_t *free, size_t *total)
{
    if (device != DEVICE_HIDDEN || free == NULL || total == NULL)
        return real.cuMemGetInfo_v2(free, total);
    *free = *total = 0;
    return CUDA_SUCCESS;
}

/*
 * The driver's own answer is not asked for: a container's memory is its cap less what it holds,
 * whatever others do with the rest of the GPU. Without a context that can be used, or without a
 * cap, it is the driver's to answer.
 */
EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER(cuMemGetInfo_v2, free, total);
    const int device = device_current();
    if (UNLIKELY(device < 0 || free == NULL || total == NULL))
        return info_elsewhere(device, free, total);
    charge_settle();
    *free = ledger_left((unsigned)device, total);
    if (UNLIKELY(*total >= device_bytes[thread.device]))
        return real.cuMemGetInfo_v2(free, total);
    return CUDA_SUCCESS;
}

/* From the time of 32-bit sizes: as much as fits. */
EXPORT CUresult cuMemGetInfo(unsigned *free, unsigned *total)
{
    ENTER(cuMemGetInfo, free, total);
    size_t wide_free = 0;
    size_t wide_total = 0;
    if (free == NULL || total == NULL)
        return real.cuMemGetInfo(free, total);
    const CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
    *free = (unsigned)smaller(wide_free, UINT32_MAX);
    *total = (unsigned)smaller(wide_total, UINT32_MAX);
    return result;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    ENTER(cuDeviceTotalMem_v2, bytes, ordinal);
    const CUresult result = real.cuDeviceTotalMem_v2(bytes, ordinal);
    const int device = device_of(ordinal);
    if (result == CUDA_SUCCESS)
        *bytes = device < 0 ? 0 : smaller(*bytes, ledger_limit((unsigned)device));
    return result;
}

EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice ordinal)
{
    ENTER(cuDeviceTotalMem, bytes, ordinal);
    const CUresult result = real.cuDeviceTotalMem(bytes, ordinal);
    const int device = device_of(ordinal);
    if (result == CUDA_SUCCESS)
        *bytes = device < 0 ? 0 : (unsigned)smaller(*bytes, ledger_limit((unsigned)device));
    return result;
}
