/*
 * The calls that copy: every one is a block in three dimensions.
 *
 * Calls that name no stream come in two forms, for the legacy default stream and for the thread's
 * own (_ptds); in calls that name one, a null handle means either (_ptsz).
 */
#include "copy.h"

/* Whether the call comes back before the copy is done. */
enum manner { AT_ONCE, QUEUED };

static CUresult copy_now(const CUDA_MEMCPY3D *copy, enum default_stream which, enum manner manner)
{
    ENTER(context);
    struct operation operation;
    TRY(copy_describe(context, copy, &operation));
    return manner == AT_ONCE ? stream_run(which, &operation)
                             : stream_submit(NULL, which, &operation);
}

static CUresult copy_on(const CUDA_MEMCPY3D *copy, CUstream stream, enum default_stream null_means)
{
    ENTER(context);
    struct operation operation;
    TRY(copy_describe(context, copy, &operation));
    return stream_submit(stream, null_means, &operation);
}

#define SYNCHRONOUS(name, parameters, copy, manner)                                                \
    ENTRY name parameters                                                                          \
    {                                                                                              \
        return copy_now(&(CUDA_MEMCPY3D)copy, DEFAULT_LEGACY, manner);                             \
    }                                                                                              \
    ENTRY name##_ptds parameters                                                                   \
    {                                                                                              \
        return copy_now(&(CUDA_MEMCPY3D)copy, DEFAULT_PER_THREAD, manner);                         \
    }

#define ASYNCHRONOUS(name, parameters, copy)                                                       \
    ENTRY name parameters                                                                          \
    {                                                                                              \
        return copy_on(&(CUDA_MEMCPY3D)copy, stream, DEFAULT_LEGACY);                              \
    }                                                                                              \
    ENTRY name##_ptsz parameters                                                                   \
    {                                                                                              \
        return copy_on(&(CUDA_MEMCPY3D)copy, stream, DEFAULT_PER_THREAD);                          \
    }

/* Parts of the initialiser of a CUDA_MEMCPY3D. */
#define FROM_HOST .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source
#define FROM_DEVICE .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = source
#define FROM_ANY .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = source
#define FROM_ARRAY                                                                                 \
    .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = source, .srcXInBytes = source_offset
#define TO_HOST .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = target
#define TO_DEVICE .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = target
#define TO_ANY .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = target
#define TO_ARRAY                                                                                   \
    .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = target, .dstXInBytes = target_offset
#define BYTES .WidthInBytes = bytes, .Height = 1, .Depth = 1
#define COPY(...) {__VA_ARGS__, BYTES}

SYNCHRONOUS(cuMemcpy, (CUdeviceptr target, CUdeviceptr source, size_t bytes),
            COPY(FROM_ANY, TO_ANY), AT_ONCE)
SYNCHRONOUS(cuMemcpyHtoD_v2, (CUdeviceptr target, const void *source, size_t bytes),
            COPY(FROM_HOST, TO_DEVICE), AT_ONCE)
SYNCHRONOUS(cuMemcpyDtoH_v2, (void *target, CUdeviceptr source, size_t bytes),
            COPY(FROM_DEVICE, TO_HOST), AT_ONCE)
SYNCHRONOUS(cuMemcpyDtoD_v2, (CUdeviceptr target, CUdeviceptr source, size_t bytes),
            COPY(FROM_DEVICE, TO_DEVICE), QUEUED)
SYNCHRONOUS(cuMemcpyDtoA_v2,
            (CUarray target, size_t target_offset, CUdeviceptr source, size_t bytes),
            COPY(FROM_DEVICE, TO_ARRAY), QUEUED)
SYNCHRONOUS(cuMemcpyAtoD_v2,
            (CUdeviceptr target, CUarray source, size_t source_offset, size_t bytes),
            COPY(FROM_ARRAY, TO_DEVICE), QUEUED)
SYNCHRONOUS(cuMemcpyHtoA_v2,
            (CUarray target, size_t target_offset, const void *source, size_t bytes),
            COPY(FROM_HOST, TO_ARRAY), AT_ONCE)
SYNCHRONOUS(cuMemcpyAtoH_v2, (void *target, CUarray source, size_t source_offset, size_t bytes),
            COPY(FROM_ARRAY, TO_HOST), AT_ONCE)
SYNCHRONOUS(cuMemcpyAtoA_v2,
            (CUarray target, size_t target_offset, CUarray source, size_t source_offset,
             size_t bytes),
            COPY(FROM_ARRAY, TO_ARRAY), QUEUED)

ASYNCHRONOUS(cuMemcpyAsync, (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream),
             COPY(FROM_ANY, TO_ANY))
ASYNCHRONOUS(cuMemcpyHtoDAsync_v2,
             (CUdeviceptr target, const void *source, size_t bytes, CUstream stream),
             COPY(FROM_HOST, TO_DEVICE))
ASYNCHRONOUS(cuMemcpyDtoHAsync_v2,
             (void *target, CUdeviceptr source, size_t bytes, CUstream stream),
             COPY(FROM_DEVICE, TO_HOST))
ASYNCHRONOUS(cuMemcpyDtoDAsync_v2,
             (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream),
             COPY(FROM_DEVICE, TO_DEVICE))
ASYNCHRONOUS(cuMemcpyHtoAAsync_v2,
             (CUarray target, size_t target_offset, const void *source, size_t bytes,
              CUstream stream),
             COPY(FROM_HOST, TO_ARRAY))
ASYNCHRONOUS(cuMemcpyAtoHAsync_v2,
             (void *target, CUarray source, size_t source_offset, size_t bytes, CUstream stream),
             COPY(FROM_ARRAY, TO_HOST))

/* --- two and three dimensions -------------------------------------------------------------- */

static CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D *copy)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = 1,
    };
}

/* Only copies that touch the host make the caller wait. */
static enum manner manner_of(CUmemorytype source, CUmemorytype target)
{
    const bool with_host = source == CU_MEMORYTYPE_HOST || target == CU_MEMORYTYPE_HOST ||
                           source == CU_MEMORYTYPE_UNIFIED || target == CU_MEMORYTYPE_UNIFIED;
    return with_host ? AT_ONCE : QUEUED;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, enum default_stream which)
{
    TRY(driver_check());
    REQUIRE(copy != NULL);
    const CUDA_MEMCPY3D block = flat(copy);
    return copy_now(&block, which, manner_of(copy->srcMemoryType, copy->dstMemoryType));
}

static CUresult copy_2d_on(const CUDA_MEMCPY2D *copy, CUstream stream,
                           enum default_stream null_means)
{
    TRY(driver_check());
    REQUIRE(copy != NULL);
    const CUDA_MEMCPY3D block = flat(copy);
    return copy_on(&block, stream, null_means);
}

ENTRY cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, DEFAULT_LEGACY);
}
TWIN(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2);

ENTRY cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, DEFAULT_PER_THREAD);
}
TWIN(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2_ptds);

ENTRY cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d_on(copy, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d_on(copy, stream, DEFAULT_PER_THREAD);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, enum default_stream which)
{
    TRY(driver_check());
    REQUIRE(copy != NULL);
    return copy_now(copy, which, manner_of(copy->srcMemoryType, copy->dstMemoryType));
}

ENTRY cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
    return copy_3d(copy, DEFAULT_LEGACY);
}

ENTRY cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy)
{
    return copy_3d(copy, DEFAULT_PER_THREAD);
}

ENTRY cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_on(copy, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_on(copy, stream, DEFAULT_PER_THREAD);
}
