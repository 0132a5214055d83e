/* Pools between processes: the pool as a file descriptor, its allocations one by one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc.h"
#include "pool.h"
#include "kernel.h"

/* What the descriptor's file says about the pool. */
struct pool_description {
    char magic[8];
    char uuid[SIM_UUID_BYTES];
};

static const char pool_magic[8] = "ALQPOOL";

ENTRY cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle,
                                       CUmemAllocationHandleType type, unsigned long long flags)
{
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    REQUIRE(shareable != NULL && flags == 0 && !pool->is_imported && pool->device != NULL);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    REQUIRE((pool->properties.handleTypes & type) != 0);
    struct pool_description description;
    memset(&description, 0, sizeof description);
    memcpy(description.magic, pool_magic, sizeof description.magic);
    memcpy(description.uuid, pool->device->profile->uuid, sizeof description.uuid);
    const int file = kernel_memory_file("simulated-gpu-pool");
    if (file < 0 ||
        pwrite(file, &description, sizeof description, 0) != (ssize_t)sizeof description) {
        if (file >= 0)
            close(file);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)shareable = file;
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shareable,
                                         CUmemAllocationHandleType type, unsigned long long flags)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && flags == 0);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct pool_description description;
    REQUIRE(pread((int)(intptr_t)shareable, &description, sizeof description, 0) ==
                (ssize_t)sizeof description &&
            memcmp(description.magic, pool_magic, sizeof description.magic) == 0);
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = -1;
    for (unsigned ordinal = 0; ordinal < driver.device_count; ordinal++) {
        if (strncmp(driver.devices[ordinal].profile->uuid, description.uuid, SIM_UUID_BYTES) == 0)
            properties.location.id = (int)ordinal;
    }
    struct pool *pool = NULL;
    TRY(pool_create_imported(&properties, &pool));
    *handle = pool_handle(pool);
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    TRY(driver_check());
    struct piece piece;
    REQUIRE(data != NULL && memory_look(address, &piece) && piece.use == PIECE_POOLED);
    const struct pool *pool = piece.detail;
    REQUIRE((pool->properties.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0);
    struct ipc_token token;
    TRY(ipc_export(address, PIECE_POOLED, &token));
    memcpy(data, &token, sizeof token);
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool handle,
                             CUmemPoolPtrExportData *data)
{
    ENTER(context);
    struct pool *pool = NULL;
    TRY(pool_find(handle, &pool));
    REQUIRE(address != NULL && data != NULL && pool->is_imported);
    struct ipc_token token;
    memcpy(&token, data, sizeof token);
    return ipc_import(context, &token, IPC_POOLED, address);
}
