/*
 * A driver with habits that a real one may have: it calls its own entries through the symbols that
 * a preloaded library catches, and it finds functions by asking the dynamic linker for them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_shim_abi.h"

static int is_initialised;
static CUcontext current;

CUresult cuInit(unsigned flags)
{
    is_initialised = flags == 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return is_initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

/* The test says which device of the limits this is. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    const char *text = getenv("ODD_UUID");
    (void)device;
    for (unsigned i = 0; i < 16; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        uuid->bytes[i] = (char)strtol(digits, NULL, 16);
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags;
    (void)device;
    *context = current = (CUcontext)&current;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    (void)context;
    current = NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return current != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    *free = *total = (size_t)80 << 30;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    static CUdeviceptr next = (CUdeviceptr)1 << 40;
    *address = next;
    next += (bytes + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    return address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Each of these is the other in disguise, called through the symbol. */
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    (void)flags;
    return cuMemAlloc_v2(address, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned element)
{
    (void)element;
    *pitch = (width + 511) & ~(size_t)511;
    return cuMemAlloc_v2(address, *pitch * height);
}

static CUresult private_alloc(CUdeviceptr *address, size_t bytes)
{
    return cuMemAlloc_v2(address, bytes);
}

/*
 * Hands out whatever the program's scope has under the name: the replacement itself. For some
 * versions it has a function of its own, at an address that it does not export.
 */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    char name[64];
    (void)flags;
    if (strcmp(symbol, "cuMemAlloc") == 0 && version != 12000) {
        *function = (void *)private_alloc;
        return CUDA_SUCCESS;
    }
    strcpy(name, symbol);
    *function = dlsym(RTLD_DEFAULT, strcat(name, "_v2"));
    if (*function == NULL)
        *function = dlsym(RTLD_DEFAULT, symbol);
    if (status != NULL)
        *status =
            *function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
