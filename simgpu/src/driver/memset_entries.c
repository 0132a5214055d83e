/* The calls that fill memory with a value; none of them makes the caller wait. */
#include "stream.h"

static CUresult fill(const CUDA_MEMSET_NODE_PARAMS *set, CUstream stream,
                     enum default_stream null_means)
{
    ENTER(context);
    struct operation operation;
    TRY(memset_describe(context, set, &operation));
    return stream_submit(stream, null_means, &operation);
}

#define FILL(element_bytes, row_step, columns, rows)                                               \
    &(CUDA_MEMSET_NODE_PARAMS){.dst = target,                                                      \
                               .pitch = (row_step),                                                \
                               .value = (value),                                                   \
                               .elementSize = (element_bytes),                                     \
                               .width = (columns),                                                 \
                               .height = (rows)}

/* A row, and rows, of one element size; each with and without a stream. */
#define FILLS(bits, type)                                                                          \
    ENTRY cuMemsetD##bits##_v2(CUdeviceptr target, type value, size_t count)                       \
    {                                                                                              \
        return fill(FILL(bits / 8, 0, count, 1), NULL, DEFAULT_LEGACY);                            \
    }                                                                                              \
    ENTRY cuMemsetD##bits##_v2_ptds(CUdeviceptr target, type value, size_t count)                  \
    {                                                                                              \
        return fill(FILL(bits / 8, 0, count, 1), NULL, DEFAULT_PER_THREAD);                        \
    }                                                                                              \
    ENTRY cuMemsetD##bits##Async(CUdeviceptr target, type value, size_t count, CUstream stream)    \
    {                                                                                              \
        return fill(FILL(bits / 8, 0, count, 1), stream, DEFAULT_LEGACY);                          \
    }                                                                                              \
    ENTRY cuMemsetD##bits##Async_ptsz(CUdeviceptr target, type value, size_t count,                \
                                      CUstream stream)                                             \
    {                                                                                              \
        return fill(FILL(bits / 8, 0, count, 1), stream, DEFAULT_PER_THREAD);                      \
    }                                                                                              \
    ENTRY cuMemsetD2D##bits##_v2(CUdeviceptr target, size_t pitch, type value, size_t width,       \
                                 size_t height)                                                    \
    {                                                                                              \
        return fill(FILL(bits / 8, pitch, width, height), NULL, DEFAULT_LEGACY);                   \
    }                                                                                              \
    ENTRY cuMemsetD2D##bits##_v2_ptds(CUdeviceptr target, size_t pitch, type value, size_t width,  \
                                      size_t height)                                               \
    {                                                                                              \
        return fill(FILL(bits / 8, pitch, width, height), NULL, DEFAULT_PER_THREAD);               \
    }                                                                                              \
    ENTRY cuMemsetD2D##bits##Async(CUdeviceptr target, size_t pitch, type value, size_t width,     \
                                   size_t height, CUstream stream)                                 \
    {                                                                                              \
        return fill(FILL(bits / 8, pitch, width, height), stream, DEFAULT_LEGACY);                 \
    }                                                                                              \
    ENTRY cuMemsetD2D##bits##Async_ptsz(CUdeviceptr target, size_t pitch, type value,              \
                                        size_t width, size_t height, CUstream stream)              \
    {                                                                                              \
        return fill(FILL(bits / 8, pitch, width, height), stream, DEFAULT_PER_THREAD);             \
    }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)
