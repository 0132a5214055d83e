/* Copies between contexts, and many copies in one call. */
#include "array.h"
#include "copy.h"

/* --- between contexts ---------------------------------------------------------------------- */

static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream,
                          enum default_stream null_means)
{
    ENTER(context);
    struct operation operation;
    TRY(copy_describe_peer(copy, &operation));
    return stream_submit(stream, null_means, &operation);
}

ENTRY cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
    return copy_peer(copy, NULL, DEFAULT_LEGACY);
}

ENTRY cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *copy)
{
    return copy_peer(copy, NULL, DEFAULT_PER_THREAD);
}

ENTRY cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    return copy_peer(copy, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    return copy_peer(copy, stream, DEFAULT_PER_THREAD);
}

#define PEER_PARAMETERS                                                                            \
    CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,    \
        size_t bytes
#define PEER_COPY                                                                                  \
    &(CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,                                   \
                          .srcDevice = source,                                                     \
                          .srcContext = source_context,                                            \
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,                                   \
                          .dstDevice = target,                                                     \
                          .dstContext = target_context,                                            \
                          .WidthInBytes = bytes,                                                   \
                          .Height = 1,                                                             \
                          .Depth = 1}

ENTRY cuMemcpyPeer(PEER_PARAMETERS)
{
    return copy_peer(PEER_COPY, NULL, DEFAULT_LEGACY);
}

ENTRY cuMemcpyPeer_ptds(PEER_PARAMETERS)
{
    return copy_peer(PEER_COPY, NULL, DEFAULT_PER_THREAD);
}

ENTRY cuMemcpyPeerAsync(PEER_PARAMETERS, CUstream stream)
{
    return copy_peer(PEER_COPY, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpyPeerAsync_ptsz(PEER_PARAMETERS, CUstream stream)
{
    return copy_peer(PEER_COPY, stream, DEFAULT_PER_THREAD);
}

/* --- in batches ---------------------------------------------------------------------------- */

static CUresult check_order(CUmemcpySrcAccessOrder order, unsigned flags)
{
    REQUIRE(order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
    REQUIRE((flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) == 0);
    return CUDA_SUCCESS;
}

static CUresult copy_linear(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream,
                            enum default_stream null_means)
{
    ENTER(context);
    const CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = source,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = target,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1,
    };
    struct operation operation;
    TRY(copy_describe(context, &copy, &operation));
    return stream_submit(stream, null_means, &operation);
}

/* What the two forms of cuMemcpyBatchAsync have in common. */
struct batch {
    CUdeviceptr *targets;
    CUdeviceptr *sources;
    size_t *sizes;
    size_t count;
    CUmemcpyAttributes *attributes;
    size_t *attribute_starts; /* each attribute holds from its start to the next one's */
    size_t attribute_count;
};

static CUresult check_batch(const struct batch *batch, CUstream stream,
                            enum default_stream null_means)
{
    /* Not on the legacy stream, as documented. */
    REQUIRE(stream != CU_STREAM_LEGACY && (stream != NULL || null_means == DEFAULT_PER_THREAD));
    REQUIRE(batch->count > 0 && batch->targets != NULL && batch->sources != NULL &&
            batch->sizes != NULL && batch->attributes != NULL && batch->attribute_starts != NULL);
    REQUIRE(batch->attribute_count > 0 && batch->attribute_count <= batch->count);
    REQUIRE(batch->attribute_starts[0] == 0);
    for (size_t number = 0; number < batch->attribute_count; number++) {
        const CUmemcpyAttributes *attributes = &batch->attributes[number];
        TRY(check_order(attributes->srcAccessOrder, attributes->flags));
        REQUIRE(number == 0 ||
                batch->attribute_starts[number] > batch->attribute_starts[number - 1]);
        REQUIRE(batch->attribute_starts[number] < batch->count);
    }
    return CUDA_SUCCESS;
}

/* `failed`, where asked for, is the copy that could not be, or SIZE_MAX for the call itself. */
static CUresult copy_batch(const struct batch *batch, size_t *failed, CUstream stream,
                           enum default_stream null_means)
{
    ENTER(context);
    if (failed != NULL)
        *failed = SIZE_MAX;
    TRY(check_batch(batch, stream, null_means));
    for (size_t number = 0; number < batch->count; number++) {
        const CUresult result = batch->sizes[number] > 0
                                    ? copy_linear(batch->targets[number], batch->sources[number],
                                                  batch->sizes[number], stream, null_means)
                                    : CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS) {
            if (failed != NULL)
                *failed = number;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

#define BATCH_PARAMETERS                                                                           \
    CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,                       \
        CUmemcpyAttributes *attributes, size_t *starts, size_t attribute_count
#define BATCH &(struct batch){targets, sources, sizes, count, attributes, starts, attribute_count}

ENTRY cuMemcpyBatchAsync(BATCH_PARAMETERS, size_t *failed, CUstream stream)
{
    return copy_batch(BATCH, failed, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpyBatchAsync_ptsz(BATCH_PARAMETERS, size_t *failed, CUstream stream)
{
    return copy_batch(BATCH, failed, stream, DEFAULT_PER_THREAD);
}

ENTRY cuMemcpyBatchAsync_v2(BATCH_PARAMETERS, CUstream stream)
{
    return copy_batch(BATCH, NULL, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpyBatchAsync_v2_ptsz(BATCH_PARAMETERS, CUstream stream)
{
    return copy_batch(BATCH, NULL, stream, DEFAULT_PER_THREAD);
}

static CUresult copy_with(CUdeviceptr target, CUdeviceptr source, size_t bytes,
                          const CUmemcpyAttributes *attributes, CUstream stream,
                          enum default_stream null_means)
{
    TRY(driver_check());
    REQUIRE(attributes != NULL && bytes > 0);
    TRY(check_order(attributes->srcAccessOrder, attributes->flags));
    return copy_linear(target, source, bytes, stream, null_means);
}

ENTRY cuMemcpyWithAttributesAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes,
                                  CUmemcpyAttributes *attributes, CUstream stream)
{
    return copy_with(target, source, bytes, attributes, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr target, CUdeviceptr source, size_t bytes,
                                       CUmemcpyAttributes *attributes, CUstream stream)
{
    return copy_with(target, source, bytes, attributes, stream, DEFAULT_PER_THREAD);
}

/* --- blocks in batches --------------------------------------------------------------------- */

/* Counts of such a block are elements of the array that takes part, or bytes. */
static CUresult element_bytes_of(const CUDA_MEMCPY3D_BATCH_OP *op, size_t *bytes)
{
    struct array_place place = {.element_bytes = 1};
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        TRY(array_locate(op->src.op.array.array, &place));
    else if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        TRY(array_locate(op->dst.op.array.array, &place));
    *bytes = place.element_bytes;
    return CUDA_SUCCESS;
}

static CUresult block_of(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *copy)
{
    size_t unit = 1;
    TRY(check_order(op->srcAccessOrder, op->flags));
    TRY(element_bytes_of(op, &unit));
    *copy = (CUDA_MEMCPY3D){
        .WidthInBytes = op->extent.width * unit,
        .Height = op->extent.height,
        .Depth = op->extent.depth,
    };
    switch ((int)op->src.type) {
    case CU_MEMCPY_OPERAND_TYPE_POINTER:
        copy->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy->srcDevice = op->src.op.ptr.ptr;
        copy->srcPitch = op->src.op.ptr.rowLength * unit;
        copy->srcHeight = op->src.op.ptr.layerHeight;
        break;
    case CU_MEMCPY_OPERAND_TYPE_ARRAY:
        copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy->srcArray = op->src.op.array.array;
        copy->srcXInBytes = op->src.op.array.offset.x * unit;
        copy->srcY = op->src.op.array.offset.y;
        copy->srcZ = op->src.op.array.offset.z;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)op->dst.type) {
    case CU_MEMCPY_OPERAND_TYPE_POINTER:
        copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy->dstDevice = op->dst.op.ptr.ptr;
        copy->dstPitch = op->dst.op.ptr.rowLength * unit;
        copy->dstHeight = op->dst.op.ptr.layerHeight;
        break;
    case CU_MEMCPY_OPERAND_TYPE_ARRAY:
        copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy->dstArray = op->dst.op.array.array;
        copy->dstXInBytes = op->dst.op.array.offset.x * unit;
        copy->dstY = op->dst.op.array.offset.y;
        copy->dstZ = op->dst.op.array.offset.z;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult copy_block(const CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                           CUstream stream, enum default_stream null_means)
{
    ENTER(context);
    REQUIRE(op != NULL && flags == 0);
    CUDA_MEMCPY3D copy;
    struct operation operation;
    TRY(block_of(op, &copy));
    TRY(copy_describe(context, &copy, &operation));
    return stream_submit(stream, null_means, &operation);
}

static CUresult copy_blocks(size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed,
                            unsigned long long flags, CUstream stream,
                            enum default_stream null_means)
{
    ENTER(context);
    if (failed != NULL)
        *failed = SIZE_MAX;
    REQUIRE(stream != CU_STREAM_LEGACY && (stream != NULL || null_means == DEFAULT_PER_THREAD));
    REQUIRE(count > 0 && ops != NULL && flags == 0);
    for (size_t number = 0; number < count; number++) {
        const CUresult result = copy_block(&ops[number], flags, stream, null_means);
        if (result != CUDA_SUCCESS) {
            if (failed != NULL)
                *failed = number;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

ENTRY cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed,
                           unsigned long long flags, CUstream stream)
{
    return copy_blocks(count, ops, failed, flags, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpy3DBatchAsync_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed,
                                unsigned long long flags, CUstream stream)
{
    return copy_blocks(count, ops, failed, flags, stream, DEFAULT_PER_THREAD);
}

ENTRY cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags,
                              CUstream stream)
{
    return copy_blocks(count, ops, NULL, flags, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpy3DBatchAsync_v2_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops,
                                   unsigned long long flags, CUstream stream)
{
    return copy_blocks(count, ops, NULL, flags, stream, DEFAULT_PER_THREAD);
}

ENTRY cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                    CUstream stream)
{
    return copy_block(op, flags, stream, DEFAULT_LEGACY);
}

ENTRY cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                         CUstream stream)
{
    return copy_block(op, flags, stream, DEFAULT_PER_THREAD);
}
