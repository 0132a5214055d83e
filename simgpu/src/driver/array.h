/* Arrays and mipmaps, as copies and textures see them and as their own files know each other. */
#pragma once

#include "driver.h"

/* Where an array's elements are: rows of rows of bytes, without gaps. */
struct array_place {
    char *base;
    size_t row_bytes;
    size_t rows;   /* of one slice */
    size_t slices; /* depth, or layers, or faces */
    size_t element_bytes;
};

struct mipmap;

struct array {
    struct context *context;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct array_place place;
    uint64_t address;
    struct mipmap *mipmap; /* whose level it is, if it is one */
    bool is_mapped;        /* has memory: at once, or since cuMemMapArrayAsync */
};

enum { MIPMAP_LEVELS = 18 };

struct mipmap {
    struct context *context;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    unsigned level_count;
    uint64_t address;
    uint64_t bytes;
    bool is_borrowed; /* its memory is somebody else's */
    struct array *levels[MIPMAP_LEVELS];
};

/* CUDA_ERROR_INVALID_HANDLE for what is no array; NOT_MAPPED for one without memory yet. */
CUresult array_locate(CUarray handle, struct array_place *place);

/* The bytes of one element; 0 for a format or a number of channels that does not exist. */
size_t array_element_bytes(CUarray_format format, unsigned channels);

/* What a handle stands for; CUDA_ERROR_INVALID_HANDLE when it is none. */
CUresult array_find(CUarray handle, struct array **array);
CUresult mipmap_find(CUmipmappedArray handle, struct mipmap **mipmap);

static inline bool array_has_flag(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned flag)
{
    return (descriptor->Flags & flag) != 0;
}

CUresult array_check(const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
struct array_place array_place_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor);

/* Memory for an array, or addresses only where memory is mapped later. */
CUresult array_back(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                    uint64_t bytes, uint64_t *address);

/* An array over addresses; NULL when there is no room for the object. */
struct array *array_new(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                        uint64_t address);
void array_drop(struct array *array);

/* A level of a mipmap, and the bytes of all levels before it. */
CUDA_ARRAY3D_DESCRIPTOR mipmap_level(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level);
uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

/* The arrays, mipmaps and texture objects of a closing context stop being handles. */
void arrays_close(const struct context *context);
void mipmaps_close(const struct context *context);
void textures_close(const struct context *context);

void arrays_forget(void);
void mipmaps_forget(void);
void textures_forget(void);

/* A mipmap over memory that something else owns (external memory). */
CUresult mipmap_over(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                     unsigned levels, uint64_t address, uint64_t bytes, CUmipmappedArray *handle);
