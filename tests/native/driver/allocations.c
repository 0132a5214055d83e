/* Device memory: how it is charged, found and given back. */
#include "check.h"

#include <pthread.h>

CASE(an_allocation_is_charged_and_given_back)
{
    fresh_context();
    const size_t before = free_bytes();
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 5 * MIB));
    CHECK(address != 0);
    CHECK_EQUAL(before - free_bytes(), 6 * MIB); /* whole blocks of 2 MiB */
    OK(cuMemFree_v2(address));
    CHECK_EQUAL(free_bytes(), before);
}

CASE(small_allocations_share_a_block)
{
    enum { COUNT = 2048 };
    static CUdeviceptr addresses[COUNT];
    fresh_context();
    const size_t before = free_bytes();
    for (int i = 0; i < COUNT; i++)
        OK(cuMemAlloc_v2(&addresses[i], 1000));
    CHECK_EQUAL(before - free_bytes(), BLOCK); /* 1000 bytes take two units of 512 */
    for (int i = 0; i < COUNT; i++) {
        CHECK(addresses[i] % 256 == 0);
        OK(cuMemFree_v2(addresses[i]));
    }
    CHECK_EQUAL(free_bytes(), before);
}

CASE(the_device_ends_at_its_size)
{
    fresh_context();
    size_t free = 0;
    size_t total = 0;
    OK(cuMemGetInfo_v2(&free, &total));
    size_t of_device = 0;
    OK(cuDeviceTotalMem_v2(&of_device, 0));
    CHECK_EQUAL(of_device, total);
    CHECK(free < total); /* the context itself */
    const size_t whole = free / BLOCK * BLOCK;
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, whole + BLOCK));
    OK(cuMemAlloc_v2(&address, whole));
    CUdeviceptr more = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, BLOCK));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, 1));
    OK(cuMemFree_v2(address));
    OK(cuMemAlloc_v2(&more, 1));
}

CASE(nonsense_is_refused)
{
    CUcontext context = fresh_context();
    CUdeviceptr address = 0;
    size_t bytes = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&address, 0));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, SIZE_MAX));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetInfo_v2(NULL, &bytes));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&address, &bytes, 100, 100, 3));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&address, &bytes, SIZE_MAX / 2, 8, 4));
    OK(cuMemFree_v2(0));
    int local = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2((CUdeviceptr)(uintptr_t)&local));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x1234));
    OK(cuMemAlloc_v2(&address, 4 * MIB));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address + 512));
    OK(cuMemFree_v2(address));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    OK(cuMemAlloc_v2(&address, 1000));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address + 512));
    OK(cuMemFree_v2(address));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    OK(cuCtxDestroy_v2(context));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 1));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemFree_v2(address));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&bytes, &bytes));
}

CASE(before_cuInit_nothing_works)
{
    CUdeviceptr address = 0;
    CUcontext context = NULL;
    int count = 0;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&address, 1));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAddressReserve(&address, BLOCK, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
}

CASE(hundred_thousand_live_allocations)
{
    enum { COUNT = 100000 };
    static CUdeviceptr addresses[COUNT];
    fresh_context();
    const size_t before = free_bytes();
    for (int i = 0; i < COUNT; i++)
        OK(cuMemAlloc_v2(&addresses[i], KIB));
    CHECK_EQUAL(before - free_bytes(), (size_t)(COUNT + 2047) / 2048 * BLOCK);
    for (int i = 0; i < COUNT; i += 2)
        OK(cuMemFree_v2(addresses[i]));
    for (int i = 0; i < COUNT; i += 2)
        OK(cuMemAlloc_v2(&addresses[i], KIB));
    for (int i = COUNT - 1; i >= 0; i--)
        OK(cuMemFree_v2(addresses[i]));
    CHECK_EQUAL(free_bytes(), before);
}

CASE(sizes_mix_without_overlap)
{
    enum { COUNT = 400 };
    struct {
        CUdeviceptr address;
        size_t bytes;
    } pieces[COUNT];
    static char expected[3 * MIB];
    fresh_context();
    const size_t before = free_bytes();
    unsigned random = 12345;
    for (int i = 0; i < COUNT; i++) {
        random = random * 1103515245 + 12345;
        pieces[i].bytes = 1 + (random >> 8) % (i % 40 == 0 ? 3 * MIB : 40 * KIB);
        OK(cuMemAlloc_v2(&pieces[i].address, pieces[i].bytes));
        paint(expected, pieces[i].bytes, (unsigned)i);
        OK(cuMemcpyHtoD_v2(pieces[i].address, expected, pieces[i].bytes));
        /* Every third goes again, so that later ones fill gaps. */
        if (i % 3 == 2)
            OK(cuMemFree_v2(pieces[i].address));
    }
    static char found[3 * MIB];
    for (int i = 0; i < COUNT; i++) {
        if (i % 3 == 2)
            continue;
        OK(cuMemcpyDtoH_v2(found, pieces[i].address, pieces[i].bytes));
        CHECK(is_painted(found, pieces[i].bytes, (unsigned)i));
        OK(cuMemFree_v2(pieces[i].address));
    }
    CHECK_EQUAL(free_bytes(), before);
}

CASE(an_address_tells_its_range)
{
    fresh_context();
    CUdeviceptr addresses[3] = {0};
    const size_t sizes[3] = {100, 1000 * KIB, 7 * MIB};
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc_v2(&addresses[i], sizes[i]));
    for (int i = 0; i < 3; i++) {
        const size_t insides[] = {0, 1, sizes[i] / 2, sizes[i] - 1};
        for (int j = 0; j < 4; j++) {
            CUdeviceptr base = 0;
            size_t bytes = 0;
            OK(cuMemGetAddressRange_v2(&base, &bytes, addresses[i] + insides[j]));
            CHECK_EQUAL(base, addresses[i]);
            CHECK_EQUAL(bytes, sizes[i]);
        }
        FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(NULL, NULL, addresses[i] + sizes[i]));
    }
    OK(cuMemGetAddressRange_v2(NULL, NULL, addresses[0]));
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(NULL, NULL, 4096));
}

CASE(pitched_rows_are_aligned)
{
    fresh_context();
    const size_t before = free_bytes();
    CUdeviceptr address = 0;
    size_t pitch = 0;
    OK(cuMemAllocPitch_v2(&address, &pitch, 1001, 3000, 4));
    CHECK(pitch >= 1001 && pitch % 256 == 0);
    size_t bytes = 0;
    OK(cuMemGetAddressRange_v2(NULL, &bytes, address));
    CHECK_EQUAL(bytes, pitch * 3000);
    CHECK(before - free_bytes() >= bytes);
    OK(cuMemFree_v2(address));
    CHECK_EQUAL(free_bytes(), before);
}

CASE(a_destroyed_context_gives_everything_back)
{
    CUcontext outer = fresh_context();
    const size_t before = free_bytes();
    CUcontext inner = NULL;
    OK(cuCtxCreate_v2(&inner, 0, 0));
    CHECK(free_bytes() < before); /* what a context takes itself */
    CUdeviceptr address = 0;
    for (int i = 0; i < 100; i++)
        OK(cuMemAlloc_v2(&address, (size_t)(i + 1) * 10 * KIB));
    OK(cuMemAllocAsync(&address, 100 * MIB, NULL));
    void *pinned = NULL;
    OK(cuMemHostAlloc(&pinned, 10, 0));
    CUarray array = NULL;
    OK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){1000, 1000, CU_AD_FORMAT_FLOAT, 4}));
    OK(cuCtxDestroy_v2(inner));
    CUcontext current = NULL;
    OK(cuCtxGetCurrent(&current));
    CHECK(current == outer);
    /* Pools belong to the device; what they keep goes when something is waited for. */
    OK(cuCtxSynchronize());
    CHECK_EQUAL(free_bytes(), before);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    CUDA_ARRAY_DESCRIPTOR descriptor;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor_v2(&descriptor, array));
}

static void *allocate_and_free(void *argument)
{
    enum { LIVE = 64, ROUNDS = 2000 };
    CUdeviceptr addresses[LIVE] = {0};
    unsigned random = (unsigned)(uintptr_t)argument + 1;
    OK(cuCtxSetCurrent(*(CUcontext *)argument));
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1103515245 + 12345;
        CUdeviceptr *slot = &addresses[(random >> 8) % LIVE];
        if (*slot != 0) {
            OK(cuMemFree_v2(*slot));
            *slot = 0;
            continue;
        }
        const size_t bytes = 8 + (random >> 16) % (3 * MIB);
        OK(cuMemAlloc_v2(slot, bytes));
        const unsigned written = random;
        unsigned read = 0;
        OK(cuMemcpyHtoD_v2(*slot + bytes - sizeof written, &written, sizeof written));
        OK(cuMemcpyDtoH_v2(&read, *slot + bytes - sizeof read, sizeof read));
        CHECK_EQUAL(read, written);
    }
    for (int i = 0; i < LIVE; i++)
        OK(cuMemFree_v2(addresses[i]));
    return NULL;
}

CASE(threads_share_a_context)
{
    enum { THREADS = 4 };
    CUcontext context = fresh_context();
    const size_t before = free_bytes();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate_and_free, &context) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_EQUAL(free_bytes(), before);
}

static void use_as_a_child(void *argument)
{
    CUdeviceptr *of_parent = argument;
    CUdeviceptr address = 0;
    CUcontext context = NULL;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&address, 1));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemFree_v2(*of_parent));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
    fresh_context();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(*of_parent));
    const size_t before = free_bytes();
    OK(cuMemAlloc_v2(&address, 64 * MIB));
    char byte = 0;
    OK(cuMemcpyHtoD_v2(address, &byte, 1));
    CHECK_EQUAL(before - free_bytes(), 64 * MIB);
    /* Ends without freeing: the node gives its memory back. */
}

CASE(a_forked_child_starts_anew)
{
    fresh_context();
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 10 * MIB));
    static char bytes[10 * MIB];
    paint(bytes, sizeof bytes, 1);
    OK(cuMemcpyHtoD_v2(address, bytes, sizeof bytes));
    const size_t before = free_bytes();
    in_child(use_as_a_child, &address);
    CHECK_EQUAL(free_bytes(), before);
    memset(bytes, 0, sizeof bytes);
    OK(cuMemcpyDtoH_v2(bytes, address, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 1));
}
