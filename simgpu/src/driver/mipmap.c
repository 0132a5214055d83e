/* Mipmaps: the same picture in ever smaller arrays, in one piece of memory. */
#include "array.h"

#include "stream.h"

enum { MOST_MIPMAPS = 1 << 16 };

static struct table mipmaps = TABLE(struct mipmap, MOST_MIPMAPS);

static size_t at_least_one(size_t count)
{
    return count > 0 ? count : 1;
}

/* A level is half as wide, high and deep as the one before; layers and faces stay. */
CUDA_ARRAY3D_DESCRIPTOR mipmap_level(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR smaller = *descriptor;
    smaller.Width = at_least_one(descriptor->Width >> level);
    if (descriptor->Height > 0)
        smaller.Height = at_least_one(descriptor->Height >> level);
    if (descriptor->Depth > 0 &&
        !array_has_flag(descriptor, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))
        smaller.Depth = at_least_one(descriptor->Depth >> level);
    return smaller;
}

static unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    size_t longest = descriptor->Width;
    longest = descriptor->Height > longest ? descriptor->Height : longest;
    if (!array_has_flag(descriptor, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))
        longest = descriptor->Depth > longest ? descriptor->Depth : longest;
    return 64 - (unsigned)__builtin_clzll(longest);
}

uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level)
{
    uint64_t bytes = 0;
    for (unsigned number = 0; number < level; number++) {
        const CUDA_ARRAY3D_DESCRIPTOR each = mipmap_level(descriptor, number);
        bytes += (array_bytes(&each) + 511) & ~UINT64_C(511);
    }
    return bytes;
}

static void drop_mipmap(struct mipmap *mipmap)
{
    for (unsigned level = 0; level < MIPMAP_LEVELS; level++) {
        if (mipmap->levels[level] != NULL)
            array_drop(mipmap->levels[level]);
    }
    table_give(&mipmaps, mipmap);
}

static void drop_of(void *object, void *argument)
{
    struct mipmap *mipmap = object;
    if (mipmap->context == argument)
        drop_mipmap(mipmap);
}

void mipmaps_close(const struct context *context)
{
    table_each(&mipmaps, drop_of, (void *)(uintptr_t)context);
}

void mipmaps_forget(void)
{
    table_forget(&mipmaps);
}

static CUresult make_mipmap(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                            unsigned levels, uint64_t address, struct mipmap **handle)
{
    struct mipmap *mipmap = table_take(&mipmaps);
    if (mipmap == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mipmap->context = context;
    mipmap->descriptor = *descriptor;
    mipmap->level_count = levels;
    mipmap->address = address;
    mipmap->bytes = mipmap_bytes(descriptor, levels);
    for (unsigned level = 0; level < levels; level++) {
        const CUDA_ARRAY3D_DESCRIPTOR each = mipmap_level(descriptor, level);
        struct array *array = array_new(context, &each, address + mipmap_bytes(descriptor, level));
        if (array == NULL) {
            drop_mipmap(mipmap);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        array->mipmap = mipmap;
        mipmap->levels[level] = array;
    }
    *handle = mipmap;
    return CUDA_SUCCESS;
}

CUresult mipmap_over(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                     unsigned levels, uint64_t address, uint64_t bytes, CUmipmappedArray *handle)
{
    struct mipmap *mipmap = NULL;
    TRY(array_check(descriptor));
    REQUIRE(levels > 0 && levels <= most_levels(descriptor));
    REQUIRE(mipmap_bytes(descriptor, levels) <= bytes);
    TRY(make_mipmap(context, descriptor, levels, address, &mipmap));
    mipmap->is_borrowed = true;
    *handle = (CUmipmappedArray)(uintptr_t)mipmap;
    return CUDA_SUCCESS;
}

ENTRY cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                             unsigned levels)
{
    ENTER(context);
    REQUIRE(handle != NULL && descriptor != NULL && levels > 0);
    TRY(array_check(descriptor));
    TRY(capture_refuse_unsafe());
    /* More levels than there can be mean all of them. */
    if (levels > most_levels(descriptor))
        levels = most_levels(descriptor);
    uint64_t address = 0;
    TRY(array_back(context, descriptor, mipmap_bytes(descriptor, levels), &address));
    struct mipmap *mipmap = NULL;
    const CUresult result = make_mipmap(context, descriptor, levels, address, &mipmap);
    if (result != CUDA_SUCCESS)
        memory_free(context, address);
    else
        *handle = (CUmipmappedArray)(uintptr_t)mipmap;
    return result;
}

CUresult mipmap_find(CUmipmappedArray handle, struct mipmap **mipmap)
{
    TRY(driver_check());
    if (!table_holds(&mipmaps, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *mipmap = (struct mipmap *)handle;
    return CUDA_SUCCESS;
}

ENTRY cuMipmappedArrayGetLevel(CUarray *level_array, CUmipmappedArray handle, unsigned level)
{
    ENTER(context);
    struct mipmap *mipmap = NULL;
    REQUIRE(level_array != NULL);
    TRY(mipmap_find(handle, &mipmap));
    REQUIRE(level < mipmap->level_count);
    *level_array = (CUarray)(uintptr_t)mipmap->levels[level];
    return CUDA_SUCCESS;
}

ENTRY cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    ENTER(context);
    struct mipmap *mipmap = NULL;
    TRY(mipmap_find(handle, &mipmap));
    TRY(streams_wait(mipmap->context));
    if (!mipmap->is_borrowed)
        memory_free(mipmap->context, mipmap->address);
    drop_mipmap(mipmap);
    return CUDA_SUCCESS;
}
