/* Pools: memory in the order of streams, kept and let go of. */
#include "check.h"

#include <unistd.h>

static uint64_t number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

#define RESERVED(pool) number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define USED(pool) number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool = NULL;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static CUmemPoolProps properties_of(int device)
{
    return (CUmemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

CASE(what_a_pool_reserves_is_charged)
{
    fresh_context();
    const size_t before = free_bytes();
    CUmemoryPool pool = default_pool();
    CUdeviceptr address = 0;
    OK(cuMemAllocAsync(&address, 10 * MIB, NULL));
    CHECK_EQUAL(USED(pool), 10 * MIB);
    CHECK(RESERVED(pool) >= 10 * MIB);
    CHECK_EQUAL(before - free_bytes(), RESERVED(pool));
    OK(cuMemFreeAsync(address, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(USED(pool), 0);
    CHECK_EQUAL(RESERVED(pool), 0); /* the threshold is 0 */
    CHECK_EQUAL(free_bytes(), before);
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 10 * MIB);
    CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 10 * MIB);
    cuuint64_t zero = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    cuuint64_t one = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &one));
}

CASE(a_threshold_keeps_memory_until_it_is_trimmed)
{
    fresh_context();
    const size_t before = free_bytes();
    CUmemoryPool pool = default_pool();
    cuuint64_t threshold = UINT64_MAX;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CUdeviceptr addresses[4];
    for (int i = 0; i < 4; i++)
        OK(cuMemAllocAsync(&addresses[i], 100 * MIB, NULL));
    for (int i = 0; i < 4; i++)
        OK(cuMemFreeAsync(addresses[i], NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(USED(pool), 0);
    CHECK(RESERVED(pool) >= 400 * MIB);
    CHECK_EQUAL(before - free_bytes(), RESERVED(pool));
    const uint64_t kept = RESERVED(pool);
    OK(cuMemAllocAsync(&addresses[0], 90 * MIB, NULL));
    CHECK_EQUAL(RESERVED(pool), kept); /* used again */
    OK(cuMemPoolTrimTo(pool, 200 * MIB));
    CHECK(RESERVED(pool) >= 200 * MIB && RESERVED(pool) < kept);
    OK(cuMemFreeAsync(addresses[0], NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK_EQUAL(RESERVED(pool), 0);
    CHECK_EQUAL(free_bytes(), before);
}

CASE(a_pool_of_its_own_has_a_limit)
{
    fresh_context();
    const size_t before = free_bytes();
    CUmemPoolProps properties = properties_of(0);
    properties.maxSize = 64 * MIB;
    CUmemoryPool pool = NULL;
    OK(cuMemPoolCreate(&pool, &properties));
    CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_MAX_POOL_SIZE), 64 * MIB);
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    OK(cuMemAllocFromPoolAsync(&first, 40 * MIB, pool, NULL));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&second, 40 * MIB, pool, NULL));
    OK(cuMemAllocFromPoolAsync(&second, 20 * MIB, pool, NULL));
    CUmemoryPool of_pointer = NULL;
    OK(cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, second));
    CHECK(of_pointer == pool);
    OK(cuDeviceSetMemPool(0, pool));
    CUmemoryPool current = NULL;
    OK(cuDeviceGetMemPool(&current, 0));
    CHECK(current == pool);
    /* It stays until the last of its allocations is gone. */
    OK(cuMemPoolDestroy(pool));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
    OK(cuDeviceGetMemPool(&current, 0));
    CHECK(current == default_pool());
    const char byte = 1;
    OK(cuMemcpyHtoD_v2(first, &byte, 1));
    OK(cuMemFreeAsync(first, NULL));
    OK(cuMemFree_v2(second));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(free_bytes(), before);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(default_pool()));
}

CASE(double_frees_and_foreign_pointers_are_refused)
{
    fresh_context();
    CUdeviceptr address = 0;
    CUdeviceptr plain = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NULL, 1, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(&address, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemAllocAsync(&address, 1, (CUstream)(uintptr_t)0x5000));
    OK(cuMemAlloc_v2(&plain, 100));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(plain, NULL));
    OK(cuMemAllocAsync(&address, 1000, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address + 512, NULL));
    OK(cuMemFreeAsync(address, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&address, 1, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo((CUmemoryPool)&address, 0));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&address, (size_t)1 << 50, NULL));
    CUmemPoolProps properties = properties_of(99);
    CUmemoryPool pool = NULL;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolCreate(&pool, &properties));
    properties = properties_of(0);
    properties.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &properties));
}

CASE(pools_use_the_last_of_the_device)
{
    fresh_context();
    const size_t before = free_bytes();
    CUdeviceptr large = 0;
    CUdeviceptr rest = 0;
    OK(cuMemAlloc_v2(&large, before / BLOCK * BLOCK - 3 * BLOCK));
    OK(cuMemAllocAsync(&rest, 3 * BLOCK, NULL)); /* less than a pool likes to grow by */
    CUdeviceptr more = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&more, 1, NULL));
    OK(cuMemFreeAsync(rest, NULL));
    OK(cuMemAllocAsync(&more, 1, NULL));
}

CASE(access_is_granted_by_device)
{
    fresh_context();
    CUmemoryPool pool = default_pool();
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    OK(cuMemPoolGetAccess(&flags, pool, &here));
    CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemPoolGetAccess(&flags, pool, &there));
    CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc access = {there, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemPoolSetAccess(pool, &access, 1));
    OK(cuMemPoolGetAccess(&flags, pool, &there));
    CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    access = (CUmemAccessDesc){here, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(pool, &access, 1));
}

CASE(pools_of_the_host_are_not_charged)
{
    fresh_context();
    const size_t before = free_bytes();
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST},
    };
    CUmemoryPool pool = NULL;
    CUdeviceptr address = 0;
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&address, 10 * MIB, pool, NULL));
    CHECK_EQUAL(free_bytes(), before);
    memset((void *)(uintptr_t)address, 1, 10 * MIB);
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK_EQUAL(type, CU_MEMORYTYPE_HOST);
    OK(cuMemFreeAsync(address, NULL));
    OK(cuMemPoolDestroy(pool));
}

static void import_pool(int socket)
{
    const int file = receive_file(socket);
    fresh_context();
    const size_t before = free_bytes();
    CUmemoryPool pool = NULL;
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0;
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)file,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(file);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&address, 1, pool, NULL));
    receive_all(socket, &data, sizeof data);
    OK(cuMemPoolImportPointer(&address, pool, &data));
    CHECK_EQUAL(free_bytes(), before); /* the exporter pays */
    char bytes[100];
    OK(cuMemcpyDtoH_v2(bytes, address, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 3));
    paint(bytes, sizeof bytes, 4);
    OK(cuMemcpyHtoD_v2(address, bytes, sizeof bytes));
    OK(cuMemFree_v2(address));
    OK(cuMemPoolDestroy(pool));
    send_all(socket, "", 1);
}

CASE(a_pool_is_shared_between_processes)
{
    struct partner importer = start_partner(import_pool);
    fresh_context();
    CUmemPoolProps properties = properties_of(0);
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = NULL;
    CUmemoryPool private = default_pool();
    int file = -1;
    OK(cuMemPoolCreate(&pool, &properties));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemPoolExportToShareableHandle(&file, private, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                           0));
    OK(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUdeviceptr first = 0;
    CUdeviceptr address = 0;
    OK(cuMemAllocFromPoolAsync(&first, 5000, pool, NULL));
    OK(cuMemAllocFromPoolAsync(&address, 5000, pool, NULL));
    char bytes[100];
    paint(bytes, sizeof bytes, 3);
    OK(cuMemcpyHtoD_v2(address, bytes, sizeof bytes));
    CUmemPoolPtrExportData data;
    OK(cuMemPoolExportPointer(&data, address));
    send_file(importer.socket, file);
    send_all(importer.socket, &data, sizeof data);
    receive_all(importer.socket, bytes, 1);
    OK(cuMemcpyDtoH_v2(bytes, address, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 4));
    close(file);
    await_partner(importer);
}
