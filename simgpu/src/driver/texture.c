/* Texture and surface objects: descriptions that kernels would read through. */
#include "array.h"

enum { MOST_OBJECTS = 1 << 18, LINEAR_ALIGNMENT = 512, PITCH_ALIGNMENT = 32 };

struct texture {
    struct context *context;
    bool is_surface;
    bool has_view;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

static struct table textures = TABLE(struct texture, MOST_OBJECTS);

static void drop_of(void *object, void *argument)
{
    if (((struct texture *)object)->context == argument)
        table_give(&textures, object);
}

void textures_close(const struct context *context)
{
    table_each(&textures, drop_of, (void *)(uintptr_t)context);
}

void textures_forget(void)
{
    table_forget(&textures);
}

static CUresult check_linear(const CUDA_RESOURCE_DESC *resource)
{
    const size_t element =
        array_element_bytes(resource->res.linear.format, resource->res.linear.numChannels);
    REQUIRE(element > 0 && resource->res.linear.devPtr % LINEAR_ALIGNMENT == 0);
    REQUIRE(memory_holds(resource->res.linear.devPtr, resource->res.linear.sizeInBytes));
    return CUDA_SUCCESS;
}

static CUresult check_pitched(const CUDA_RESOURCE_DESC *resource)
{
    const size_t element =
        array_element_bytes(resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
    const size_t pitch = resource->res.pitch2D.pitchInBytes;
    const size_t height = resource->res.pitch2D.height;
    size_t bytes = 0;
    REQUIRE(element > 0 && resource->res.pitch2D.devPtr % LINEAR_ALIGNMENT == 0);
    REQUIRE(pitch % PITCH_ALIGNMENT == 0 && resource->res.pitch2D.width <= pitch / element);
    REQUIRE(height > 0 && !__builtin_mul_overflow(pitch, height, &bytes));
    REQUIRE(memory_holds(resource->res.pitch2D.devPtr,
                         bytes - pitch + resource->res.pitch2D.width * element));
    return CUDA_SUCCESS;
}

static CUresult check_resource(const CUDA_RESOURCE_DESC *resource, bool for_surface)
{
    struct array *array = NULL;
    struct mipmap *mipmap = NULL;
    REQUIRE(resource->flags == 0);
    switch ((int)resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        TRY(array_find(resource->res.array.hArray, &array));
        REQUIRE(!for_surface || array_has_flag(&array->descriptor, CUDA_ARRAY3D_SURFACE_LDST));
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        REQUIRE(!for_surface);
        return mipmap_find(resource->res.mipmap.hMipmappedArray, &mipmap);
    case CU_RESOURCE_TYPE_LINEAR:
        REQUIRE(!for_surface);
        return check_linear(resource);
    case CU_RESOURCE_TYPE_PITCH2D:
        REQUIRE(!for_surface);
        return check_pitched(resource);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

ENTRY cuTexObjectCreate(CUtexObject *handle, const CUDA_RESOURCE_DESC *resource,
                        const CUDA_TEXTURE_DESC *description, const CUDA_RESOURCE_VIEW_DESC *view)
{
    ENTER(context);
    REQUIRE(handle != NULL && resource != NULL && description != NULL);
    TRY(check_resource(resource, false));
    struct texture *texture = table_take(&textures);
    if (texture == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    texture->context = context;
    texture->resource = *resource;
    texture->texture = *description;
    texture->has_view = view != NULL;
    if (view != NULL)
        texture->view = *view;
    *handle = (CUtexObject)(uintptr_t)texture;
    return CUDA_SUCCESS;
}

ENTRY cuSurfObjectCreate(CUsurfObject *handle, const CUDA_RESOURCE_DESC *resource)
{
    ENTER(context);
    REQUIRE(handle != NULL && resource != NULL);
    TRY(check_resource(resource, true));
    struct texture *surface = table_take(&textures);
    if (surface == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    surface->context = context;
    surface->is_surface = true;
    surface->resource = *resource;
    *handle = (CUsurfObject)(uintptr_t)surface;
    return CUDA_SUCCESS;
}

static CUresult find(unsigned long long handle, bool is_surface, struct texture **texture)
{
    ENTER(context);
    struct texture *found = (struct texture *)(uintptr_t)handle;
    REQUIRE(table_holds(&textures, found) && found->is_surface == is_surface);
    *texture = found;
    return CUDA_SUCCESS;
}

ENTRY cuTexObjectDestroy(CUtexObject handle)
{
    struct texture *texture = NULL;
    TRY(find(handle, false, &texture));
    table_give(&textures, texture);
    return CUDA_SUCCESS;
}

ENTRY cuSurfObjectDestroy(CUsurfObject handle)
{
    struct texture *surface = NULL;
    TRY(find(handle, true, &surface));
    table_give(&textures, surface);
    return CUDA_SUCCESS;
}

ENTRY cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject handle)
{
    struct texture *texture = NULL;
    REQUIRE(resource != NULL);
    TRY(find(handle, false, &texture));
    *resource = texture->resource;
    return CUDA_SUCCESS;
}

ENTRY cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject handle)
{
    struct texture *surface = NULL;
    REQUIRE(resource != NULL);
    TRY(find(handle, true, &surface));
    *resource = surface->resource;
    return CUDA_SUCCESS;
}

ENTRY cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *description, CUtexObject handle)
{
    struct texture *texture = NULL;
    REQUIRE(description != NULL);
    TRY(find(handle, false, &texture));
    *description = texture->texture;
    return CUDA_SUCCESS;
}

ENTRY cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject handle)
{
    struct texture *texture = NULL;
    REQUIRE(view != NULL);
    TRY(find(handle, false, &texture));
    REQUIRE(texture->has_view);
    *view = texture->view;
    return CUDA_SUCCESS;
}
