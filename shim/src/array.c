/*
 * Arrays and mipmaps: charged by extent, because the driver tells neither their size nor where they
 * are.
 */
#include "allocations.h"
#include "charge.h"
#include "device.h"
#include "virtual.h"

/* Bytes of one element with all its channels, at most. */
static uint64_t element_bytes(CUarray_format format, unsigned channels)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * (uint64_t)channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * (uint64_t)channels;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
        return 1;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
        return 2;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT_101010_2:
        return 4;
    default:
        /* Compressed blocks are a byte an element or less; of video formats none is above eight. */
        return format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB ? 1 : 8;
    }
}

static uint64_t at_least_one(uint64_t count)
{
    return count > 0 ? count : 1;
}

/* Half of the extent from level to level, but where it counts layers and not depth. */
static uint64_t extent_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    const bool is_layered = (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    uint64_t bytes = 0;
    for (unsigned level = 0; level < levels && level < 64; level++) {
        const uint64_t depth = is_layered ? array->Depth : array->Depth >> level;
        const uint64_t factors[] = {at_least_one(array->Height >> level), at_least_one(depth),
                                    element_bytes(array->Format, array->NumChannels)};
        uint64_t level_bytes = at_least_one(array->Width >> level);
        for (unsigned i = 0; i < sizeof factors / sizeof factors[0]; i++)
            if (__builtin_mul_overflow(level_bytes, factors[i], &level_bytes))
                return CHARGE_IMPOSSIBLE;
        if (__builtin_add_overflow(bytes, level_bytes, &bytes))
            return CHARGE_IMPOSSIBLE;
    }
    return bytes;
}

/* Small ones share blocks with others; each is charged as much of one as if all were its size. */
static uint64_t array_charge(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    enum { UNIT_BYTES = 512 };
    /* What is mapped there later is charged when it is created. */
    if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    const uint64_t bytes = extent_bytes(array, levels);
    if (bytes > BLOCK_BYTES / 2)
        return charge_of(bytes);
    const uint64_t rounded = (at_least_one(bytes) + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    return BLOCK_BYTES / (BLOCK_BYTES / rounded);
}

/* The end of every replacement that makes an array; `destroy` undoes what cannot be remembered. */
static CUresult settle(CUresult result, enum kind kind, uint64_t handle, uint64_t charge,
                       int device)
{
    if (result == CUDA_SUCCESS &&
        allocation_join(kind, handle, charge, device, thread.owner) != STANDING_NONE)
        return CUDA_SUCCESS;
    charge_return(device, charge);
    if (result != CUDA_SUCCESS)
        return result;
    if (kind == KIND_ARRAY)
        (void)REAL(cuArrayDestroy, (CUarray)(uintptr_t)handle);
    else
        (void)REAL(cuMipmappedArrayDestroy, (CUmipmappedArray)(uintptr_t)handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* `full` is the description in the form of cuArray3DCreate_v2. */
#define CREATES(name, kind, levels, full, parameters, ...)                                         \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        const int device = device_current();                                                       \
        if (device == DEVICE_NONE || array == NULL || from == NULL)                                \
            return real.name(__VA_ARGS__);                                                         \
        const uint64_t charge = array_charge(&(const CUDA_ARRAY3D_DESCRIPTOR)full, levels);        \
        if (!charge_take(device, charge))                                                          \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        return settle(result, kind, result == CUDA_SUCCESS ? (uintptr_t)*array : 0, charge,        \
                      device);                                                                     \
    }

#define FLAT {from->Width, from->Height, 0, from->Format, from->NumChannels, 0}
#define FULL {from->Width, from->Height, from->Depth, from->Format, from->NumChannels, from->Flags}

CREATES(cuArrayCreate, KIND_ARRAY, 1, FLAT, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v1 *from),
        array, from)
CREATES(cuArrayCreate_v2, KIND_ARRAY, 1, FLAT, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *from),
        array, from)
CREATES(cuArray3DCreate, KIND_ARRAY, 1, FULL,
        (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *from), array, from)
CREATES(cuArray3DCreate_v2, KIND_ARRAY, 1, FULL,
        (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *from), array, from)
CREATES(cuMipmappedArrayCreate, KIND_MIPMAP, levels, FULL,
        (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *from, unsigned levels), array,
        from, levels)

#define DESTROYS(name, kind, type)                                                                 \
    EXPORT CUresult name(type array)                                                               \
    {                                                                                              \
        ENTER(name, array);                                                                        \
        struct allocation entry;                                                                   \
        const enum standing standing = allocation_leave(kind, (uintptr_t)array, &entry);           \
        const CUresult result = REAL(name, array);                                                 \
        if (standing == STANDING_NONE)                                                             \
            return result;                                                                         \
        if (result == CUDA_SUCCESS) {                                                              \
            charge_return(entry.device, entry.bytes);                                              \
            if (entry.bytes == 0)                                                                  \
                tiles_end((uintptr_t)array);                                                       \
        } else {                                                                                   \
            allocation_join(kind, (uintptr_t)array, entry.bytes, entry.device, entry.owner);       \
        }                                                                                          \
        return result;                                                                             \
    }
DESTROYS(cuArrayDestroy, KIND_ARRAY, CUarray)
DESTROYS(cuMipmappedArrayDestroy, KIND_MIPMAP, CUmipmappedArray)
