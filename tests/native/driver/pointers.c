/* Pinned and managed memory, and what a pointer tells about itself. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static unsigned type_of(CUdeviceptr address)
{
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    return type;
}

CASE(device_pointers)
{
    CUcontext context = fresh_context();
    CUdeviceptr one = 0;
    CUdeviceptr other = 0;
    OK(cuMemAlloc_v2(&one, 1000));
    OK(cuMemAlloc_v2(&other, 1000));
    CHECK_EQUAL(type_of(one + 5), CU_MEMORYTYPE_DEVICE);
    CUcontext of_pointer = NULL;
    OK(cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_CONTEXT, one));
    CHECK(of_pointer == context);
    CUdeviceptr start = 0;
    size_t bytes = 0;
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, one + 999));
    OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, one + 999));
    CHECK_EQUAL(start, one);
    CHECK_EQUAL(bytes, 1000);
    void *host = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, one));
    unsigned long long ids[2] = {0};
    OK(cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, one));
    OK(cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    CHECK(ids[0] != ids[1]);
    int ordinal = -1;
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, one));
    CHECK_EQUAL(ordinal, 0);
    int managed = -1;
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, one));
    CHECK_EQUAL(managed, 0);
    const unsigned yes = 1;
    int synchronous = 0;
    OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one));
    OK(cuPointerGetAttribute(&synchronous, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one));
    CHECK_EQUAL(synchronous, 1);
    OK(cuMemFree_v2(one));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, one));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&bytes, (CUpointer_attribute)99, other));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, other));
}

CASE(unknown_pointers_are_no_error_in_lists)
{
    fresh_context();
    int local = 0;
    unsigned type = 7;
    int ordinal = 7;
    void *pointer = &local;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&type, &ordinal, &pointer};
    OK(cuPointerGetAttributes(3, attributes, data, (CUdeviceptr)(uintptr_t)&local));
    CHECK(type == 0 && ordinal == -2 && pointer == NULL);
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 1));
    OK(cuPointerGetAttributes(3, attributes, data, address));
    CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && pointer == NULL);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, attributes, data, address));
}

CASE(pinned_memory)
{
    CUcontext context = fresh_context();
    const size_t before = free_bytes();
    void *pinned = NULL;
    OK(cuMemHostAlloc(&pinned, 100 * KIB, CU_MEMHOSTALLOC_PORTABLE));
    CHECK_EQUAL(free_bytes(), before);
    memset(pinned, 1, 100 * KIB);
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)pinned;
    CHECK_EQUAL(type_of(address + 10), CU_MEMORYTYPE_HOST);
    CUdeviceptr mapped = 0;
    OK(cuMemHostGetDevicePointer_v2(&mapped, (char *)pinned + 8, 0));
    CHECK_EQUAL(mapped, address + 8);
    OK(cuMemsetD8_v2(mapped, 2, 10));
    OK(cuCtxSynchronize());
    CHECK(((char *)pinned)[8] == 2 && ((char *)pinned)[7] == 1);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    OK(cuMemGetAddressRange_v2(&base, &bytes, address + 10));
    CHECK(base == address && bytes == 100 * KIB);
    unsigned flags = 0;
    OK(cuMemHostGetFlags(&flags, pinned));
    CHECK((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((char *)pinned + 8));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pinned));
    OK(cuMemFreeHost(pinned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&pinned, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&pinned, 1, 0x80));
    OK(cuMemAllocHost_v2(&pinned, 10));
    OK(cuCtxDestroy_v2(context));
    fresh_context();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned)); /* it went with its context */
}

CASE(registered_memory)
{
    fresh_context();
    static char bytes[64 * KIB];
    OK(cuMemHostRegister_v2(bytes + 4 * KIB, 8 * KIB, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK_EQUAL(type_of((CUdeviceptr)(uintptr_t)(bytes + 5 * KIB)), CU_MEMORYTYPE_HOST);
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(bytes, 5 * KIB, 0));
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          cuMemHostRegister_v2(bytes + 11 * KIB, 5 * KIB, 0));
    OK(cuMemHostRegister_v2(bytes + 12 * KIB, 4 * KIB, 0));
    OK(cuMemHostRegister_v2(bytes, 4 * KIB, 0));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(bytes + 5 * KIB));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(bytes));
    OK(cuMemHostUnregister(bytes + 4 * KIB));
    OK(cuMemHostUnregister(bytes + 12 * KIB));
    OK(cuMemHostUnregister(bytes));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(bytes));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(NULL, 1, 0));
    CUdeviceptr mapped = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&mapped, bytes, 0));
}

static void read_pinned(void *argument)
{
    CHECK(is_painted(argument, 4096, 9));
}

CASE(pinned_memory_survives_a_fork)
{
    fresh_context();
    void *pinned = NULL;
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    paint(pinned, 4096, 9);
    in_child(read_pinned, pinned);
}

CASE(managed_memory_is_charged_where_it_is)
{
    fresh_context();
    const size_t before = free_bytes();
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocManaged(&address, 200 * GIB, CU_MEM_ATTACH_GLOBAL)); /* more than the device has */
    OK(cuMemFree_v2(address));
    OK(cuMemAllocManaged(&address, 100 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQUAL(free_bytes(), before);
    ((char *)(uintptr_t)address)[5] = 7;
    void *host = NULL;
    OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
    CHECK_EQUAL((uintptr_t)host, address);
    int managed = 0;
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 100));
    CHECK_EQUAL(managed, 1);
    OK(cuMemPrefetchAsync(address, 100 * MIB, 0, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(before - free_bytes(), 100 * MIB);
    int where = 9;
    OK(cuMemRangeGetAttribute(&where, sizeof where, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                              address, 100 * MIB));
    CHECK_EQUAL(where, 0);
    OK(cuMemPrefetchAsync(address, 100 * MIB, CU_DEVICE_CPU, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(free_bytes(), before);
    OK(cuMemPrefetchAsync(address, 100 * MIB, 0, NULL));
    OK(cuMemFree_v2(address));
    CHECK_EQUAL(free_bytes(), before);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(address, 1, 0, NULL));
}

CASE(advice_is_answered_back)
{
    fresh_context();
    CUdeviceptr address = 0;
    OK(cuMemAllocManaged(&address, MIB, CU_MEM_ATTACH_GLOBAL));
    int value = 0;
    const size_t size = sizeof value;
    OK(cuMemAdvise(address, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    OK(cuMemRangeGetAttribute(&value, size, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, MIB));
    CHECK_EQUAL(value, 1);
    OK(cuMemRangeGetAttribute(&value, size, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, 1));
    CHECK(value == CU_DEVICE_INVALID);
    OK(cuMemAdvise(address, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    OK(cuMemRangeGetAttribute(&value, size, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, 1));
    CHECK(value == CU_DEVICE_CPU);
    const CUmemLocation second = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    OK(cuMemAdvise_v2(address, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, second));
    int devices[3] = {0};
    OK(cuMemRangeGetAttribute(devices, sizeof devices, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address,
                              MIB));
    CHECK(devices[0] == 1 && devices[1] == CU_DEVICE_INVALID);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemAdvise(address, MIB + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise(address, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 77));
    CUdeviceptr plain = 0;
    OK(cuMemAlloc_v2(&plain, MIB));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(plain, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
}
