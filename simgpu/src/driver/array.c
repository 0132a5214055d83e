/*
 * Arrays and mipmaps: elements in rows without gaps, whatever the hardware's order would be.
 *
 * A sparse array, or one whose mapping is deferred, has addresses but no memory of its own: what is
 * mapped to it was booked by cuMemCreate. Formats that spread one pixel over several planes or
 * blocks are not simulated.
 */
#include "array.h"

#include <string.h>

#include "memory.h"
#include "stream.h"

enum { MOST_ARRAYS = 1 << 18 };

static struct table arrays = TABLE(struct array, MOST_ARRAYS);

size_t array_element_bytes(CUarray_format format, unsigned channels)
{
    size_t bytes = 0;
    if (channels != 1 && channels != 2 && channels != 4)
        return 0;
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * channels;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
        bytes = 1;
        break;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
        bytes = 2;
        break;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT_101010_2:
        bytes = 4;
        break;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
        bytes = 8;
        break;
    default:
        return 0;
    }
    /* These say their channels in the format; the number has to agree. */
    return bytes % channels == 0 ? bytes : 0;
}

CUresult array_check(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    const size_t most_wide = descriptor->Depth > 0 ? 32768 : 131072;
    const size_t most_high = descriptor->Depth > 0 ? 32768 : 65536;
    REQUIRE(array_element_bytes(descriptor->Format, descriptor->NumChannels) > 0);
    REQUIRE(descriptor->Width > 0 && descriptor->Width <= most_wide);
    REQUIRE(descriptor->Height <= most_high && descriptor->Depth <= 16384);
    if (array_has_flag(descriptor, CUDA_ARRAY3D_CUBEMAP)) {
        REQUIRE(descriptor->Width == descriptor->Height);
        REQUIRE(array_has_flag(descriptor, CUDA_ARRAY3D_LAYERED)
                    ? descriptor->Depth > 0 && descriptor->Depth % 6 == 0
                    : descriptor->Depth == 6);
    } else if (array_has_flag(descriptor, CUDA_ARRAY3D_LAYERED)) {
        REQUIRE(descriptor->Depth > 0);
    } else {
        REQUIRE(descriptor->Depth == 0 || descriptor->Height > 0);
    }
    return CUDA_SUCCESS;
}

static size_t at_least_one(size_t count)
{
    return count > 0 ? count : 1;
}

struct array_place array_place_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    struct array_place place = {
        .element_bytes = array_element_bytes(descriptor->Format, descriptor->NumChannels),
        .rows = at_least_one(descriptor->Height),
        .slices = at_least_one(descriptor->Depth),
    };
    place.row_bytes = descriptor->Width * place.element_bytes;
    return place;
}

uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    const struct array_place place = array_place_of(descriptor);
    return (uint64_t)place.row_bytes * place.rows * place.slices;
}

CUresult array_back(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                    uint64_t bytes, uint64_t *address)
{
    const bool later =
        array_has_flag(descriptor, CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
    struct piece *piece = NULL;
    if (later)
        TRY(memory_take_addresses(context, bytes, PIECE_DEVICE, NULL, &piece));
    else
        TRY(memory_take(context, bytes, &piece));
    *address = piece->start;
    return CUDA_SUCCESS;
}

struct array *array_new(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                        uint64_t address)
{
    struct array *array = table_take(&arrays);
    if (array == NULL)
        return NULL;
    array->context = context;
    array->descriptor = *descriptor;
    array->place = array_place_of(descriptor);
    array->place.base = (char *)(uintptr_t)address;
    array->address = address;
    array->is_mapped = !array_has_flag(descriptor, CUDA_ARRAY3D_DEFERRED_MAPPING);
    return array;
}

void array_drop(struct array *array)
{
    table_give(&arrays, array);
}

static void drop_of(void *object, void *argument)
{
    struct array *array = object;
    if (array->context == argument && array->mipmap == NULL)
        array_drop(array);
}

void arrays_close(const struct context *context)
{
    table_each(&arrays, drop_of, (void *)(uintptr_t)context);
}

void arrays_forget(void)
{
    table_forget(&arrays);
}

static CUresult create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    ENTER(context);
    REQUIRE(handle != NULL && descriptor != NULL);
    TRY(array_check(descriptor));
    TRY(capture_refuse_unsafe());
    uint64_t address = 0;
    TRY(array_back(context, descriptor, array_bytes(descriptor), &address));
    struct array *array = array_new(context, descriptor, address);
    if (array == NULL) {
        memory_free(context, address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (CUarray)(uintptr_t)array;
    return CUDA_SUCCESS;
}

ENTRY cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return create(handle, descriptor);
}

ENTRY cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    TRY(driver_check());
    REQUIRE(descriptor != NULL);
    return create(handle, &(CUDA_ARRAY3D_DESCRIPTOR){
                              .Width = descriptor->Width,
                              .Height = descriptor->Height,
                              .Format = descriptor->Format,
                              .NumChannels = descriptor->NumChannels,
                          });
}

CUresult array_find(CUarray handle, struct array **array)
{
    TRY(driver_check());
    if (!table_holds(&arrays, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *array = (struct array *)handle;
    return CUDA_SUCCESS;
}

CUresult array_locate(CUarray handle, struct array_place *place)
{
    struct array *array = NULL;
    TRY(array_find(handle, &array));
    if (!__atomic_load_n(&array->is_mapped, __ATOMIC_RELAXED))
        return CUDA_ERROR_NOT_MAPPED;
    *place = array->place;
    return CUDA_SUCCESS;
}

ENTRY cuArrayDestroy(CUarray handle)
{
    ENTER(context);
    struct array *array = NULL;
    TRY(array_find(handle, &array));
    if (array->mipmap != NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(streams_wait(array->context));
    memory_free(array->context, array->address);
    array_drop(array);
    return CUDA_SUCCESS;
}

ENTRY cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray handle)
{
    ENTER(context);
    REQUIRE(descriptor != NULL);
    struct array *array = NULL;
    TRY(array_find(handle, &array));
    *descriptor = array->descriptor;
    return CUDA_SUCCESS;
}

ENTRY cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    REQUIRE(descriptor != NULL);
    TRY(cuArray3DGetDescriptor_v2(&full, handle));
    *descriptor = (CUDA_ARRAY_DESCRIPTOR){full.Width, full.Height, full.Format, full.NumChannels};
    return CUDA_SUCCESS;
}

/* There are no formats with planes here. */
ENTRY cuArrayGetPlane(CUarray *plane, CUarray handle, unsigned number)
{
    (void)number;
    ENTER(context);
    REQUIRE(plane != NULL);
    struct array *array = NULL;
    TRY(array_find(handle, &array));
    return CUDA_ERROR_INVALID_VALUE;
}
