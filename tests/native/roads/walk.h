/*
 * What every program here does with the functions that its road has led to: asks for more than its
 * cap in each way there is, then for a little, and prints one line with the answers.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include "cuda_shim_abi.h"

typedef void *(*finder)(const char *name);

#define CALL(name, ...)                                                                            \
    __extension__({                                                                                \
        void *found = find(#name);                                                                 \
        found == NULL ? -1 : (int)((__typeof__(&name))found)(__VA_ARGS__);                         \
    })

/* The names are symbols; a finder that wants base names strips them itself. */
static int walk(finder find)
{
    const size_t too_much = (size_t)2 << 30;
    int count = -1;
    CUdevice device = -1;
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    size_t pitch = 0;
    CUarray array = NULL;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp where;
    memset(&where, 0, sizeof where);
    where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUDA_ARRAY_DESCRIPTOR shape;
    memset(&shape, 0, sizeof shape);
    shape.Width = 32768;
    shape.Height = 32768;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;

    const int init = CALL(cuInit, 0);
    CALL(cuDeviceGetCount, &count);
    CALL(cuDeviceGet, &device, 0);
    const int made = CALL(cuCtxCreate_v2, &context, 0, device);
    CALL(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    printf("init=%d count=%d context=%d total=%zu", init, count, made, total_bytes >> 20);
    printf(" alloc=%d", CALL(cuMemAlloc_v2, &address, too_much));
    printf(" managed=%d", CALL(cuMemAllocManaged, &address, too_much, CU_MEM_ATTACH_GLOBAL));
    printf(" pitch=%d", CALL(cuMemAllocPitch_v2, &address, &pitch, 1 << 20, 2048, 4));
    printf(" create=%d", CALL(cuMemCreate, &handle, too_much, &where, 0));
    printf(" async=%d", CALL(cuMemAllocAsync, &address, too_much, NULL));
    printf(" array=%d", CALL(cuArrayCreate_v2, &array, &shape));
    const int little = CALL(cuMemAlloc_v2, &address, 16 << 20);
    size_t left_bytes = 0;
    CALL(cuMemGetInfo_v2, &left_bytes, &total_bytes);
    printf(" little=%d took=%zu", little, (free_bytes - left_bytes) >> 20);
    printf(" freed=%d", CALL(cuMemFree_v2, address));
    CALL(cuMemGetInfo_v2, &left_bytes, &total_bytes);
    printf(" back=%d\n", left_bytes == free_bytes);
    CALL(cuCtxDestroy_v2, context);
    return fflush(stdout);
}
