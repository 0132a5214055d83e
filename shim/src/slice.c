/*
 * What programs are told of a device's memory: their slice of it.
 */
#include "charge.h"
#include "device.h"

static size_t smaller(uint64_t one, uint64_t other)
{
    return (size_t)(one < other ? one : other);
}

/* Total and free as the container may use them; the GPU itself may have less left. */
static void narrow(int device, size_t *free, size_t *total)
{
    const uint64_t limit = ledger_limit((unsigned)device);
    if (limit == UINT64_MAX)
        return;
    charge_settle();
    const uint64_t used = ledger_used((unsigned)device);
    *free = smaller(*free, used < limit ? limit - used : 0);
    *total = smaller(*total, limit);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER(cuMemGetInfo_v2, free, total);
    const CUresult result = real.cuMemGetInfo_v2(free, total);
    if (LIKELY(result == CUDA_SUCCESS)) {
        const int device = device_current();
        if (LIKELY(device >= 0))
            narrow(device, free, total);
        else
            *free = *total = 0;
    }
    return result;
}

EXPORT CUresult cuMemGetInfo(unsigned *free, unsigned *total)
{
    ENTER(cuMemGetInfo, free, total);
    const CUresult result = real.cuMemGetInfo(free, total);
    const int device = device_current();
    if (result == CUDA_SUCCESS && device >= 0) {
        size_t wide_free = *free;
        size_t wide_total = *total;
        narrow(device, &wide_free, &wide_total);
        *free = (unsigned)wide_free;
        *total = (unsigned)wide_total;
    }
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
