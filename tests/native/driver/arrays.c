/* Arrays, mipmaps, textures: their shapes, their charges, their handles. */
#include "check.h"

CASE(arrays_are_charged_by_their_bytes)
{
    fresh_context();
    const size_t before = free_bytes();
    CUarray array = NULL;
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = 1024,
                                                             .Height = 1024,
                                                             .Depth = 4,
                                                             .Format = CU_AD_FORMAT_FLOAT,
                                                             .NumChannels = 4}));
    CHECK_EQUAL(before - free_bytes(), 64 * MIB);
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    OK(cuArray3DGetDescriptor_v2(&descriptor, array));
    CHECK(descriptor.Width == 1024 && descriptor.Depth == 4 && descriptor.NumChannels == 4);
    OK(cuArrayDestroy(array));
    CHECK_EQUAL(free_bytes(), before);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&descriptor, array));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY,
          cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = 16384,
                                                                .Height = 16384,
                                                                .Depth = 1024,
                                                                .Format = CU_AD_FORMAT_FLOAT,
                                                                .NumChannels = 1}));
}

CASE(impossible_shapes_are_refused)
{
    fresh_context();
    CUarray array = NULL;
    const CUDA_ARRAY3D_DESCRIPTOR shapes[] = {
        {0, 1, 1, CU_AD_FORMAT_FLOAT, 1, 0},
        {10, 10, 0, CU_AD_FORMAT_FLOAT, 3, 0},
        {10, 10, 0, (CUarray_format)0x7f, 1, 0},
        {10, 0, 10, CU_AD_FORMAT_FLOAT, 1, 0},
        {10, 10, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP},
        {10, 11, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP},
        {(size_t)1 << 40, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &shapes[i]));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, NULL));
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){10, 10, 6, CU_AD_FORMAT_FLOAT, 1,
                                                             CUDA_ARRAY3D_CUBEMAP}));
    OK(cuArray3DCreate_v2(
        &array, &(CUDA_ARRAY3D_DESCRIPTOR){10, 0, 7, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_LAYERED}));
}

CASE(levels_of_a_mipmap_are_arrays)
{
    fresh_context();
    const size_t before = free_bytes();
    const CUDA_ARRAY3D_DESCRIPTOR shape = {1024, 512, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    CUmipmappedArray mipmap = NULL;
    OK(cuMipmappedArrayCreate(&mipmap, &shape, 99)); /* all that there are */
    CHECK(before - free_bytes() >= 1024 * 512 * 4);
    CUarray levels[11] = {NULL};
    size_t width = 1024;
    size_t height = 512;
    static char bytes[1024 * 512 * 4];
    for (unsigned i = 0; i < 11; i++) {
        CUDA_ARRAY_DESCRIPTOR descriptor;
        OK(cuMipmappedArrayGetLevel(&levels[i], mipmap, i));
        OK(cuArrayGetDescriptor_v2(&descriptor, levels[i]));
        CHECK_EQUAL(descriptor.Width, width);
        CHECK_EQUAL(descriptor.Height, height);
        paint(bytes, width * height * 4, i);
        OK(cuMemcpyHtoA_v2(levels[i], 0, bytes, width * height * 4));
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : 1;
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&levels[0], mipmap, 11));
    OK(cuMemcpyAtoH_v2(bytes, levels[3], 0, 128 * 64 * 4)); /* no level has hit another */
    CHECK(is_painted(bytes, 128 * 64 * 4, 3));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(levels[3]));
    OK(cuMipmappedArrayDestroy(mipmap));
    CHECK_EQUAL(free_bytes(), before);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoH_v2(bytes, levels[3], 0, 1));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
}

CASE(sparse_arrays_have_tiles_instead_of_memory)
{
    fresh_context();
    const size_t before = free_bytes();
    CUarray array = NULL;
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1,
                                                             CUDA_ARRAY3D_SPARSE}));
    CHECK_EQUAL(free_bytes(), before);
    CUDA_ARRAY_SPARSE_PROPERTIES properties;
    OK(cuArrayGetSparseProperties(&properties, array));
    CHECK_EQUAL(properties.tileExtent.width * properties.tileExtent.height * 4, 64 * KIB);
    CUarray plain = NULL;
    OK(cuArrayCreate_v2(&plain, &(CUDA_ARRAY_DESCRIPTOR){16, 16, CU_AD_FORMAT_FLOAT, 1}));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayGetSparseProperties(&properties, plain));
}

CASE(deferred_arrays_are_mapped_later)
{
    fresh_context();
    CUarray array = NULL;
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){512, 512, 0, CU_AD_FORMAT_FLOAT, 1,
                                                             CUDA_ARRAY3D_DEFERRED_MAPPING}));
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    OK(cuArrayGetMemoryRequirements(&needs, array, 0));
    CHECK(needs.size >= 512 * 512 * 4);
    char byte = 4;
    FAILS(CUDA_ERROR_NOT_MAPPED, cuMemcpyHtoA_v2(array, 0, &byte, 1));
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUmemGenericAllocationHandle memory = 0;
    OK(cuMemCreate(&memory, BLOCK, &properties, 0));
    CUarrayMapInfo info = {
        .resourceType = CU_RESOURCE_TYPE_ARRAY,
        .resource.array = array,
        .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
        .memHandle.memHandle = memory,
        .deviceBitMask = 1,
    };
    OK(cuMemMapArrayAsync(&info, 1, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemcpyHtoA_v2(array, 0, &byte, 1));
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    OK(cuMemMapArrayAsync(&info, 1, NULL));
    OK(cuCtxSynchronize());
    FAILS(CUDA_ERROR_NOT_MAPPED, cuMemcpyHtoA_v2(array, 0, &byte, 1));
    info.memHandle.memHandle = 5;
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync(&info, 1, NULL));
}

CASE(texture_objects_describe_what_they_read)
{
    CUcontext context = fresh_context();
    CUarray array = NULL;
    OK(cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){64, 64, CU_AD_FORMAT_FLOAT, 1}));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    CUDA_TEXTURE_DESC texture = {.filterMode = CU_TR_FILTER_MODE_LINEAR};
    CUtexObject object = 0;
    OK(cuTexObjectCreate(&object, &resource, &texture, NULL));
    CUDA_RESOURCE_DESC answered;
    OK(cuTexObjectGetResourceDesc(&answered, object));
    CHECK(answered.res.array.hArray == array);
    CUDA_TEXTURE_DESC told;
    OK(cuTexObjectGetTextureDesc(&told, object));
    CHECK_EQUAL(told.filterMode, CU_TR_FILTER_MODE_LINEAR);
    CUsurfObject surface = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&surface, &resource)); /* not made for it */
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(object));
    OK(cuTexObjectDestroy(object));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(object));
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 4096));
    resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_LINEAR,
                                    .res.linear = {address, CU_AD_FORMAT_FLOAT, 1, 4096}};
    OK(cuTexObjectCreate(&object, &resource, &texture, NULL));
    resource.res.linear.sizeInBytes = 4097;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &resource, &texture, NULL));
    OK(cuArray3DCreate_v2(&array, &(CUDA_ARRAY3D_DESCRIPTOR){64, 64, 0, CU_AD_FORMAT_FLOAT, 1,
                                                             CUDA_ARRAY3D_SURFACE_LDST}));
    resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    OK(cuSurfObjectCreate(&surface, &resource));
    OK(cuCtxDestroy_v2(context));
    fresh_context();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(surface));
}

CASE(tensor_maps_tell_requests_apart)
{
    fresh_context();
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 64 * KIB));
    void *pointer = (void *)(uintptr_t)address;
    CUtensorMap one;
    CUtensorMap other;
    const cuuint64_t sizes[] = {64, 64};
    const cuuint64_t strides[] = {128};
    cuuint32_t box[] = {32, 8};
    const cuuint32_t steps[] = {1, 1};
    OK(cuTensorMapEncodeTiled(&one, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, pointer, sizes, strides,
                              box, steps, 0, 0, 0, 0));
    OK(cuTensorMapEncodeTiled(&other, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, pointer, sizes, strides,
                              box, steps, 0, 0, 0, 0));
    CHECK(memcmp(&one, &other, sizeof one) == 0);
    OK(cuTensorMapReplaceAddress(&other, (char *)pointer + 1024));
    CHECK(memcmp(&one, &other, sizeof one) != 0);
    box[1] = 4;
    OK(cuTensorMapEncodeTiled(&other, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, pointer, sizes, strides,
                              box, steps, 0, 0, 0, 0));
    CHECK(memcmp(&one, &other, sizeof one) != 0);
    box[0] = 3; /* not a multiple of 16 bytes */
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuTensorMapEncodeTiled(&one, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, pointer, sizes, strides,
                                 box, steps, 0, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuTensorMapEncodeTiled(&one, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 6, pointer, sizes, strides,
                                 box, steps, 0, 0, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&one, (char *)pointer + 1));
}
