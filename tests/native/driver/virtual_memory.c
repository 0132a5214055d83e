/* Virtual memory: addresses and physical memory apart from each other. */
#include "check.h"

#include <unistd.h>

static const CUmemAllocationProp on_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static const CUmemAccessDesc by_device = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

static CUmemGenericAllocationHandle create(size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, bytes, &on_device, 0));
    return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

CASE(physical_memory_is_charged_while_it_is_held)
{
    fresh_context();
    const size_t before = free_bytes();
    size_t granularity = 0;
    OK(cuMemGetAllocationGranularity(&granularity, &on_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQUAL(granularity, BLOCK);
    const CUdeviceptr address = reserve(8 * BLOCK);
    CHECK_EQUAL(free_bytes(), before); /* addresses are free */
    CUmemGenericAllocationHandle handle = create(2 * BLOCK);
    CHECK_EQUAL(before - free_bytes(), 2 * BLOCK);
    OK(cuMemMap(address, 2 * BLOCK, 0, handle, 0));
    OK(cuMemRelease(handle));
    CHECK_EQUAL(before - free_bytes(), 2 * BLOCK); /* the mapping holds it */
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * BLOCK));
    OK(cuMemUnmap(address, 2 * BLOCK));
    CHECK_EQUAL(free_bytes(), before);
    OK(cuMemAddressFree(address, 8 * BLOCK));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * BLOCK));
}

CASE(one_memory_at_two_addresses)
{
    fresh_context();
    static char bytes[BLOCK];
    const CUdeviceptr one = reserve(4 * BLOCK);
    const CUdeviceptr other = reserve(4 * BLOCK);
    CUmemGenericAllocationHandle handle = create(2 * BLOCK);
    OK(cuMemMap(one + BLOCK, 2 * BLOCK, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(one + BLOCK, bytes, 1)); /* no access yet */
    OK(cuMemSetAccess(one + BLOCK, 2 * BLOCK, &by_device, 1));
    OK(cuMemMap(other, 2 * BLOCK, 0, handle, 0));
    OK(cuMemSetAccess(other, 2 * BLOCK, &by_device, 1));
    paint(bytes, sizeof bytes, 1);
    OK(cuMemcpyHtoD_v2(one + BLOCK + 1000, bytes, sizeof bytes));
    memset(bytes, 0, sizeof bytes);
    OK(cuMemcpyDtoH_v2(bytes, other + 1000, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 1));
    unsigned long long flags = 0;
    OK(cuMemGetAccess(&flags, &by_device.location, other));
    CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemUnmap(one + BLOCK, 2 * BLOCK));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, one + BLOCK, 1));
    OK(cuMemcpyDtoH_v2(bytes, other + 1000, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 1));
}

CASE(mappings_side_by_side_are_one_range)
{
    enum { COUNT = 8 };
    fresh_context();
    const size_t before = free_bytes();
    const CUdeviceptr address = reserve(COUNT * BLOCK);
    CUmemGenericAllocationHandle handles[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        handles[i] = create(BLOCK);
        OK(cuMemMap(address + i * BLOCK, BLOCK, 0, handles[i], 0));
    }
    OK(cuMemSetAccess(address, COUNT * BLOCK, &by_device, 1));
    OK(cuMemsetD8_v2(address, 5, COUNT * BLOCK));
    char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, address + COUNT * BLOCK - 1, 1));
    CHECK_EQUAL(byte, 5);
    OK(cuMemUnmap(address + 3 * BLOCK, BLOCK));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address, 5, COUNT * BLOCK));
    OK(cuMemsetD8_v2(address, 6, 3 * BLOCK));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, COUNT * BLOCK));
    OK(cuMemUnmap(address, 3 * BLOCK));
    OK(cuMemUnmap(address + 4 * BLOCK, 4 * BLOCK));
    for (int i = 0; i < COUNT; i++)
        OK(cuMemRelease(handles[i]));
    CHECK_EQUAL(free_bytes(), before);
}

CASE(handles_are_counted)
{
    fresh_context();
    const size_t before = free_bytes();
    const CUdeviceptr address = reserve(BLOCK);
    CUmemGenericAllocationHandle handle = create(BLOCK);
    CUmemGenericAllocationHandle again = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    OK(cuMemMap(address, BLOCK, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 100)));
    CHECK_EQUAL(again, handle);
    CUmemAllocationProp properties;
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, again));
    CHECK_EQUAL(properties.location.id, 0);
    OK(cuMemUnmap(address, BLOCK));
    OK(cuMemRelease(handle));
    CHECK_EQUAL(before - free_bytes(), BLOCK);
    OK(cuMemRelease(again));
    CHECK_EQUAL(free_bytes(), before);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&properties, again));
}

CASE(what_does_not_fit_is_refused)
{
    fresh_context();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, BLOCK + 1, &on_device, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, BLOCK, NULL, 0));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (size_t)1 << 50, &on_device, 0));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY,
          cuMemCreate(&handle, free_bytes() / BLOCK * BLOCK + BLOCK, &on_device, 0));
    CUmemAllocationProp properties = on_device;
    properties.location.id = 99;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, BLOCK, &properties, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 1, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, BLOCK, 3, 0, 0));
    handle = create(BLOCK);
    address = reserve(2 * BLOCK);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 2 * BLOCK, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 1, BLOCK, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 2 * BLOCK, BLOCK, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, BLOCK, 0, 12345, 0));
    OK(cuMemMap(address, BLOCK, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, BLOCK, 0, handle, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 2 * BLOCK, &by_device, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 2 * BLOCK));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
}

CASE(reservations_are_aligned_and_follow_hints)
{
    fresh_context();
    CUdeviceptr address = 0;
    const CUdeviceptr spacer = reserve(BLOCK);
    OK(cuMemAddressReserve(&address, 4 * BLOCK, GIB, 0, 0));
    CHECK_EQUAL(address % GIB, 0);
    OK(cuMemAddressFree(address, 4 * BLOCK));
    CUdeviceptr again = 0;
    OK(cuMemAddressReserve(&again, 2 * BLOCK, 0, address + BLOCK, 0));
    CHECK_EQUAL(again, address + BLOCK);
    CUdeviceptr other = 0;
    OK(cuMemAddressReserve(&other, BLOCK, 0, again, 0)); /* taken: somewhere else */
    CHECK(other != again);
    OK(cuMemAddressFree(other, BLOCK));
    OK(cuMemAddressFree(again, 2 * BLOCK));
    OK(cuMemAddressFree(spacer, BLOCK));
    OK(cuMemAddressReserve(&address, 200 * GIB, 0, 0, 0)); /* more than there is memory */
}

CASE(memory_of_the_host_is_not_charged)
{
    fresh_context();
    const size_t before = free_bytes();
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST},
    };
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, BLOCK, &properties, 0));
    CHECK_EQUAL(free_bytes(), before);
    OK(cuMemRelease(handle));
}

static void import(int socket)
{
    const int file = receive_file(socket);
    fresh_context();
    const size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)socket,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(file);
    CHECK_EQUAL(free_bytes(), before); /* the exporter pays */
    const CUdeviceptr address = reserve(2 * BLOCK);
    OK(cuMemMap(address, 2 * BLOCK, 0, handle, 0));
    OK(cuMemSetAccess(address, 2 * BLOCK, &by_device, 1));
    static char bytes[BLOCK];
    OK(cuMemcpyDtoH_v2(bytes, address + 5000, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 2));
    paint(bytes, sizeof bytes, 3);
    OK(cuMemcpyHtoD_v2(address + 5000, bytes, sizeof bytes));
    send_all(socket, "", 1);
}

CASE(a_handle_is_shared_between_processes)
{
    struct partner importer = start_partner(import);
    fresh_context();
    CUmemAllocationProp properties = on_device;
    CUmemGenericAllocationHandle handle = create(BLOCK);
    int file = -1;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, 2 * BLOCK, &properties, 0));
    const CUdeviceptr address = reserve(2 * BLOCK);
    OK(cuMemMap(address, 2 * BLOCK, 0, handle, 0));
    OK(cuMemSetAccess(address, 2 * BLOCK, &by_device, 1));
    static char bytes[BLOCK];
    paint(bytes, sizeof bytes, 2);
    OK(cuMemcpyHtoD_v2(address + 5000, bytes, sizeof bytes));
    OK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_file(importer.socket, file);
    close(file);
    receive_all(importer.socket, bytes, 1);
    OK(cuMemcpyDtoH_v2(bytes, address + 5000, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 3));
    await_partner(importer);
}

CASE(multicast_objects_bind_memory_of_their_devices)
{
    fresh_context();
    const size_t before = free_bytes();
    const CUmulticastObjectProp properties = {.numDevices = 2, .size = 4 * BLOCK};
    CUmemGenericAllocationHandle object = 0;
    size_t granularity = 0;
    OK(cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM));
    CHECK_EQUAL(granularity, BLOCK);
    OK(cuMulticastCreate(&object, &properties));
    CHECK_EQUAL(free_bytes(), before);
    CUmemGenericAllocationHandle memory = create(2 * BLOCK);
    OK(cuMulticastAddDevice(object, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastAddDevice(object, 0));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuMulticastBindMem(object, 0, memory, 0, 2 * BLOCK, 0));
    OK(cuMulticastAddDevice(object, 1));
    OK(cuMulticastBindMem(object, 0, memory, 0, 2 * BLOCK, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, BLOCK, memory, 0, BLOCK, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 3 * BLOCK, memory, 0, 2 * BLOCK, 0));
    OK(cuMulticastBindMem_v2(object, 1, 0, memory, 0, BLOCK, 0));
    OK(cuMemRelease(memory));
    CHECK_EQUAL(before - free_bytes(), 2 * BLOCK); /* bound memory stays */
    const CUdeviceptr address = reserve(4 * BLOCK);
    OK(cuMemMap(address, 4 * BLOCK, 0, object, 0));
    OK(cuMemSetAccess(address, 4 * BLOCK, &by_device, 1));
    OK(cuMulticastUnbind(object, 0, 0, 2 * BLOCK));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastUnbind(object, 0, 0, 2 * BLOCK));
    OK(cuMulticastUnbind(object, 1, 0, BLOCK));
    CHECK_EQUAL(free_bytes(), before);
    OK(cuMemUnmap(address, 4 * BLOCK));
    OK(cuMemRelease(object));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastAddDevice(object, 0));
}
