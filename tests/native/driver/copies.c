/* Copies and memsets: the bytes that go in come out, in every direction and dimension. */
#include "check.h"

enum { BYTES = 3 * MIB + 17 };

static unsigned char source[4 * MIB];
static unsigned char target[4 * MIB];

static CUdeviceptr memory(size_t bytes)
{
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, bytes));
    return address;
}

CASE(one_dimension_round_trips)
{
    fresh_context();
    const CUdeviceptr one = memory(BYTES);
    const CUdeviceptr other = memory(BYTES);
    paint(source, BYTES, 1);
    OK(cuMemcpyHtoD_v2(one, source, BYTES));
    OK(cuMemcpyDtoD_v2(other, one, BYTES));
    OK(cuMemcpyDtoH_v2(target, other, BYTES));
    CHECK(is_painted(target, BYTES, 1));
    OK(cuMemcpyDtoH_v2(target, other + 1000, 16));
    CHECK(memcmp(target, source + 1000, 16) == 0);
}

CASE(per_thread_entries_do_the_same)
{
    fresh_context();
    const CUdeviceptr one = memory(BYTES);
    const CUdeviceptr other = memory(BYTES);
    paint(source, BYTES, 2);
    OK(cuMemcpyHtoD_v2_ptds(one, source, BYTES));
    OK(cuMemcpyDtoDAsync_v2_ptsz(other, one, BYTES, NULL));
    OK(cuMemcpyDtoHAsync_v2_ptsz(target, other, BYTES, NULL));
    OK(cuCtxSynchronize());
    CHECK(is_painted(target, BYTES, 2));
    OK(cuMemcpy_ptds((CUdeviceptr)(uintptr_t)target, one, 5));
    OK(cuMemsetD8_v2_ptds(one, 9, 5));
    OK(cuMemcpyAsync_ptsz((CUdeviceptr)(uintptr_t)target, one, 5, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(target[4], 9);
}

CASE(unified_copies_find_out_what_is_where)
{
    fresh_context();
    const CUdeviceptr device = memory(BYTES);
    CUdeviceptr managed = 0;
    OK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    paint(source, BYTES, 3);
    OK(cuMemcpy(managed, (CUdeviceptr)(uintptr_t)source, BYTES));
    CHECK(is_painted((void *)(uintptr_t)managed, BYTES, 3));
    OK(cuMemcpy(device, managed, BYTES));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)target, device, BYTES));
    CHECK(is_painted(target, BYTES, 3));
}

CASE(copies_outside_of_an_allocation_are_refused)
{
    CUcontext context = fresh_context();
    const CUdeviceptr address = memory(1000);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, source, 1001));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address + 999, source, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, source, SIZE_MAX));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(target, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(target, 4096, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address, 0, 1001));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(address + 1, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(NULL));
    OK(cuMemcpyHtoD_v2(address + 999, source, 1));
    OK(cuMemcpyHtoD_v2(address, NULL, 0));
    OK(cuMemFree_v2(address));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, source, 1));
    OK(cuCtxDestroy_v2(context));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyHtoD_v2(address, source, 1));
}

CASE(memsets_fill_elements)
{
    fresh_context();
    const CUdeviceptr address = memory(4096);
    OK(cuMemsetD8_v2(address, 0xAB, 4096));
    OK(cuMemsetD16_v2(address + 100, 0x1234, 10));
    OK(cuMemsetD32_v2(address + 200, 0xDEADBEEF, 10));
    OK(cuMemsetD2D8_v2(address + 1024, 64, 1, 5, 3));
    OK(cuMemsetD2D16Async(address + 2048, 64, 0x0203, 5, 3, NULL));
    OK(cuMemsetD2D32Async_ptsz(address + 3072, 64, 0x04050607, 5, 3, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(target, address, 4096));
    CHECK_EQUAL(target[99], 0xAB);
    CHECK_EQUAL(target[100], 0x34);
    CHECK_EQUAL(target[119], 0x12);
    CHECK_EQUAL(target[120], 0xAB);
    CHECK(memcmp(target + 236, "\xEF\xBE\xAD\xDE\xAB", 5) == 0);
    for (int row = 0; row < 3; row++) {
        CHECK_EQUAL(target[1024 + row * 64 + 4], 1);
        CHECK_EQUAL(target[1024 + row * 64 + 5], 0xAB);
        CHECK(memcmp(target + 2048 + row * 64 + 8, "\x03\x02\xAB", 3) == 0);
        CHECK(memcmp(target + 3072 + row * 64 + 16, "\x07\x06\x05\x04\xAB", 5) == 0);
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(address, 4, 0, 5, 2));
    OK(cuMemsetD8_v2(address, 0, 0));
}

CASE(two_dimensions_keep_their_pitches)
{
    enum { WIDTH = 37, HEIGHT = 11, HOST_PITCH = 50 };
    fresh_context();
    CUdeviceptr address = 0;
    size_t pitch = 0;
    OK(cuMemAllocPitch_v2(&address, &pitch, WIDTH, HEIGHT, 4));
    OK(cuMemsetD8_v2(address, 0xEE, pitch * HEIGHT));
    paint(source, HOST_PITCH * (HEIGHT + 3), 4);
    CUDA_MEMCPY2D copy = {
        .srcXInBytes = 2,
        .srcY = 3,
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = source,
        .srcPitch = HOST_PITCH,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = address,
        .dstPitch = pitch,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
    OK(cuMemcpy2D_v2(&copy));
    memset(target, 0, sizeof target);
    copy = (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = address,
        .srcPitch = pitch,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = target,
        .dstPitch = 64,
        .dstXInBytes = 1,
        .dstY = 1,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
    OK(cuMemcpy2DAsync_v2(&copy, NULL));
    OK(cuCtxSynchronize());
    for (int row = 0; row < HEIGHT; row++)
        CHECK(memcmp(target + (row + 1) * 64 + 1, source + (row + 3) * HOST_PITCH + 2, WIDTH) == 0);
    CHECK_EQUAL(target[64], 0);
    CHECK_EQUAL(target[64 + 1 + WIDTH], 0);
    OK(cuMemcpyDtoH_v2(target, address + WIDTH, 1));
    CHECK_EQUAL(target[0], 0xEE); /* what lies between the rows stays */
    copy.dstPitch = WIDTH;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DUnaligned_v2(&copy));
    copy.dstPitch = 64;
    copy.Height = HEIGHT + 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&copy));
    copy.Height = HEIGHT;
    copy.srcMemoryType = (CUmemorytype)9;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&copy));
}

CASE(three_dimensions_round_trip_through_an_array)
{
    enum { WIDTH = 20, HEIGHT = 6, DEPTH = 5 };
    fresh_context();
    CUarray array = NULL;
    OK(cuArray3DCreate_v2(
        &array, &(CUDA_ARRAY3D_DESCRIPTOR){WIDTH, HEIGHT, DEPTH, CU_AD_FORMAT_FLOAT, 2, 0}));
    const size_t row = WIDTH * 8;
    const size_t all = row * HEIGHT * DEPTH;
    paint(source, all, 5);
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = source,
        .srcPitch = row,
        .srcHeight = HEIGHT,
        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
        .dstArray = array,
        .WidthInBytes = row,
        .Height = HEIGHT,
        .Depth = DEPTH,
    };
    OK(cuMemcpy3D_v2(&copy));
    /* A block from the middle, into device memory, and from there to the host. */
    const CUdeviceptr device = memory(64 * KIB);
    copy = (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_ARRAY,
        .srcArray = array,
        .srcXInBytes = 16,
        .srcY = 2,
        .srcZ = 1,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = device,
        .dstPitch = 128,
        .dstHeight = 8,
        .WidthInBytes = 40,
        .Height = 3,
        .Depth = 4,
    };
    OK(cuMemcpy3DAsync_v2(&copy, NULL));
    OK(cuMemcpyDtoH_v2(target, device, 128 * 8 * 4));
    for (size_t z = 0; z < 4; z++) {
        for (size_t y = 0; y < 3; y++)
            CHECK(memcmp(target + z * 128 * 8 + y * 128,
                         source + (z + 1) * row * HEIGHT + (y + 2) * row + 16, 40) == 0);
    }
    copy.Depth = 5;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&copy));
    copy.Depth = 4;
    copy.srcLOD = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&copy));
    OK(cuArrayDestroy(array));
    copy.srcLOD = 0;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3D_v2(&copy));
}

CASE(arrays_copy_by_offset)
{
    fresh_context();
    CUarray one = NULL;
    CUarray other = NULL;
    const CUDA_ARRAY_DESCRIPTOR row = {1000, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuArrayCreate_v2(&one, &row));
    OK(cuArrayCreate_v2(&other, &row));
    paint(source, 1000, 6);
    OK(cuMemcpyHtoA_v2(one, 0, source, 1000));
    OK(cuMemcpyAtoA_v2(other, 10, one, 20, 500));
    OK(cuMemcpyAtoH_v2(target, other, 10, 500));
    CHECK(memcmp(target, source + 20, 500) == 0);
    const CUdeviceptr device = memory(1000);
    OK(cuMemcpyAtoD_v2(device, one, 0, 1000));
    OK(cuMemcpyDtoA_v2(other, 0, device, 1000));
    OK(cuMemcpyAtoHAsync_v2(target, other, 0, 1000, NULL));
    OK(cuCtxSynchronize());
    CHECK(is_painted(target, 1000, 6));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(one, 501, source, 500));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyHtoA_v2((CUarray)source, 0, source, 1));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyHtoA_v2(NULL, 0, source, 1));
}

CASE(peers_exchange_memory)
{
    CUcontext first = fresh_context();
    const CUdeviceptr one = memory(BYTES);
    CUcontext second = NULL;
    OK(cuCtxCreate_v2(&second, 0, 1));
    const CUdeviceptr other = memory(BYTES);
    paint(source, BYTES, 7);
    OK(cuMemcpyHtoD_v2(one, source, BYTES));
    OK(cuMemcpyPeer(other, second, one, first, BYTES));
    OK(cuMemcpyDtoH_v2(target, other, BYTES));
    CHECK(is_painted(target, BYTES, 7));
    OK(cuMemsetD8_v2(other, 0, BYTES));
    OK(cuMemcpyPeerAsync(other, second, one, first, BYTES, NULL));
    OK(cuMemcpyDtoH_v2(target, other, BYTES));
    CHECK(is_painted(target, BYTES, 7));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(other, second, one, NULL, 1));
    int can = 0;
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQUAL(can, 1);
    OK(cuCtxEnablePeerAccess(first, 0));
    FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(first, 0));
    OK(cuCtxDisablePeerAccess(first));
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(first));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(second, 0));
}

CASE(batches_copy_all_or_tell_which_one_failed)
{
    fresh_context();
    CUdeviceptr from[3];
    CUdeviceptr to[3];
    size_t sizes[3] = {100, 200, 300};
    paint(source, 600, 8);
    for (int i = 0; i < 3; i++) {
        from[i] = (CUdeviceptr)(uintptr_t)(source + i * 200);
        to[i] = memory(sizes[i]);
    }
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t start = 0;
    size_t failed = 0;
    OK(cuMemcpyBatchAsync_v2(to, from, sizes, 3, &attributes, &start, 1, CU_STREAM_PER_THREAD));
    for (int i = 0; i < 3; i++) {
        OK(cuMemcpyDtoH_v2(target, to[i], sizes[i]));
        CHECK(memcmp(target, source + i * 200, sizes[i]) == 0);
    }
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &start, 1, &failed, NULL));
    sizes[1] = 201;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &start, 1,
                                                       &failed, CU_STREAM_PER_THREAD));
    CHECK_EQUAL(failed, 1);
    OK(cuMemcpyWithAttributesAsync(to[0], from[1], 100, &attributes, NULL));
    CUDA_MEMCPY3D_BATCH_OP op = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = from[0]}},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                .op.ptr = {.ptr = to[2], .rowLength = 20, .layerHeight = 5}},
        .extent = {10, 5, 2},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    };
    OK(cuMemcpy3DBatchAsync_v2(1, &op, 0, CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH_v2(target, to[2], 200));
    CHECK(memcmp(target + 100 + 40, source + 50 + 20, 10) == 0);
}

CASE(large_memory_costs_nothing_until_it_is_written)
{
    fresh_context();
    const CUdeviceptr address = memory(16 * GIB);
    const char byte = 42;
    OK(cuMemcpyHtoD_v2(address + 16 * GIB - 1, &byte, 1));
    OK(cuMemcpyDtoH_v2(target, address + 16 * GIB - 2, 2));
    CHECK_EQUAL(target[1], 42);
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%*d %ld", &pages) == 1);
    fclose(statm);
    CHECK(pages < 64 << 10);
    OK(cuMemFree_v2(address));
}
