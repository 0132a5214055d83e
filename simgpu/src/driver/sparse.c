/*
 * Arrays whose memory comes later: in tiles, or as a whole.
 *
 * Mapping tells the array that it has memory; the bytes stay in the array's own addresses, so two
 * arrays that are mapped to the same memory do not see each other's elements.
 */
#include <string.h>

#include "array.h"
#include "stream.h"
#include "virtual.h"

enum { TILE_BYTES = 64 << 10 };

/* The part of an array that 64 KiB hold. */
static void set_tile(CUDA_ARRAY_SPARSE_PROPERTIES *properties, const struct array_place *place,
                     bool is_deep)
{
    const unsigned log2 = (unsigned)__builtin_ctzll(place->element_bytes);
    static const uint16_t flat[][3] = {
        {256, 256, 1}, {256, 128, 1}, {128, 128, 1}, {128, 64, 1}, {64, 64, 1}};
    static const uint16_t deep[][3] = {
        {64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};
    const uint16_t *extent = is_deep ? deep[log2] : flat[log2];
    properties->tileExtent.width = extent[0];
    properties->tileExtent.height = extent[1];
    properties->tileExtent.depth = extent[2];
}

static CUresult sparse_properties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                  const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
    REQUIRE(array_has_flag(descriptor, CUDA_ARRAY3D_SPARSE));
    const struct array_place place = array_place_of(descriptor);
    const bool is_deep = descriptor->Depth > 0 && !array_has_flag(descriptor, CUDA_ARRAY3D_LAYERED);
    memset(properties, 0, sizeof *properties);
    set_tile(properties, &place, is_deep);
    unsigned tail = 0;
    for (; tail < levels; tail++) {
        const CUDA_ARRAY3D_DESCRIPTOR level = mipmap_level(descriptor, tail);
        if (level.Width < properties->tileExtent.width ||
            level.Height < properties->tileExtent.height)
            break;
    }
    properties->miptailFirstLevel = tail;
    const uint64_t tail_bytes = mipmap_bytes(descriptor, levels) - mipmap_bytes(descriptor, tail);
    properties->miptailSize = (tail_bytes + TILE_BYTES - 1) & ~(uint64_t)(TILE_BYTES - 1);
    return CUDA_SUCCESS;
}

ENTRY cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray handle)
{
    struct array *array = NULL;
    REQUIRE(properties != NULL);
    TRY(array_find(handle, &array));
    return sparse_properties(properties, &array->descriptor, 1);
}

ENTRY cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                          CUmipmappedArray handle)
{
    struct mipmap *mipmap = NULL;
    REQUIRE(properties != NULL);
    TRY(mipmap_find(handle, &mipmap));
    return sparse_properties(properties, &mipmap->descriptor, mipmap->level_count);
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *answer,
                             const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint64_t bytes)
{
    REQUIRE(array_has_flag(descriptor, CUDA_ARRAY3D_DEFERRED_MAPPING));
    memset(answer, 0, sizeof *answer);
    answer->alignment = TILE_BYTES;
    answer->size = (bytes + TILE_BYTES - 1) & ~(uint64_t)(TILE_BYTES - 1);
    return CUDA_SUCCESS;
}

ENTRY cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *answer, CUarray handle,
                                   CUdevice ordinal)
{
    struct device *device = NULL;
    struct array *array = NULL;
    REQUIRE(answer != NULL);
    TRY(device_get(ordinal, &device));
    TRY(array_find(handle, &array));
    return requirements(answer, &array->descriptor, array_bytes(&array->descriptor));
}

ENTRY cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *answer,
                                            CUmipmappedArray handle, CUdevice ordinal)
{
    struct device *device = NULL;
    struct mipmap *mipmap = NULL;
    REQUIRE(answer != NULL);
    TRY(device_get(ordinal, &device));
    TRY(mipmap_find(handle, &mipmap));
    return requirements(answer, &mipmap->descriptor, mipmap->bytes);
}

/* --- mapping ------------------------------------------------------------------------------- */

struct change {
    CUarray array;
    CUmipmappedArray mipmap;
    bool is_mapped;
};

static void map_run(struct context *context, void *arguments)
{
    (void)context;
    const struct change *change = arguments;
    struct array *array = NULL;
    struct mipmap *mipmap = NULL;
    if (array_find(change->array, &array) == CUDA_SUCCESS)
        __atomic_store_n(&array->is_mapped, change->is_mapped, __ATOMIC_RELAXED);
    if (mipmap_find(change->mipmap, &mipmap) != CUDA_SUCCESS)
        return;
    for (unsigned level = 0; level < mipmap->level_count; level++)
        __atomic_store_n(&mipmap->levels[level]->is_mapped, change->is_mapped, __ATOMIC_RELAXED);
}

static CUresult describe(const CUarrayMapInfo *info, struct operation *operation)
{
    struct change change = {.is_mapped = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP};
    const CUDA_ARRAY3D_DESCRIPTOR *descriptor = NULL;
    REQUIRE(info->memOperationType == CU_MEM_OPERATION_TYPE_MAP ||
            info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP);
    REQUIRE(info->memHandleType == CU_MEM_HANDLE_TYPE_GENERIC && info->flags == 0);
    if (info->resourceType == CU_RESOURCE_TYPE_ARRAY) {
        struct array *array = NULL;
        TRY(array_find(info->resource.array, &array));
        change.array = info->resource.array;
        descriptor = &array->descriptor;
    } else {
        struct mipmap *mipmap = NULL;
        REQUIRE(info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);
        TRY(mipmap_find(info->resource.mipmap, &mipmap));
        change.mipmap = info->resource.mipmap;
        descriptor = &mipmap->descriptor;
    }
    const bool deferred = array_has_flag(descriptor, CUDA_ARRAY3D_DEFERRED_MAPPING);
    REQUIRE(deferred || array_has_flag(descriptor, CUDA_ARRAY3D_SPARSE));
    if (change.is_mapped)
        TRY(virtual_check_handle(info->memHandle.memHandle));
    *operation = (struct operation){.node_type = CU_GRAPH_NODE_TYPE_EMPTY};
    /* A sparse array can always be written to; writes outside its tiles have no meaning. */
    if (deferred)
        operation->run = map_run;
    memcpy(operation->arguments, &change, sizeof change);
    return CUDA_SUCCESS;
}

static CUresult map(CUarrayMapInfo *infos, unsigned count, CUstream stream,
                    enum default_stream null_means)
{
    ENTER(context);
    REQUIRE(infos != NULL && count > 0);
    for (unsigned number = 0; number < count; number++) {
        struct operation operation;
        TRY(describe(&infos[number], &operation));
        TRY(stream_submit(stream, null_means, &operation));
    }
    return CUDA_SUCCESS;
}

ENTRY cuMemMapArrayAsync(CUarrayMapInfo *infos, unsigned count, CUstream stream)
{
    return map(infos, count, stream, DEFAULT_LEGACY);
}

ENTRY cuMemMapArrayAsync_ptsz(CUarrayMapInfo *infos, unsigned count, CUstream stream)
{
    return map(infos, count, stream, DEFAULT_PER_THREAD);
}
