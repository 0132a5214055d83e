/*
 * Copies and memsets in one, two and three dimensions.
 */
#pragma once

#include "cuda_array.h"

typedef struct {
    size_t srcXInBytes;
    size_t srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes;
    size_t dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes;
    size_t Height;
} CUDA_MEMCPY2D;

typedef struct {
    size_t srcXInBytes;
    size_t srcY;
    size_t srcZ;
    size_t srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch;
    size_t srcHeight;
    size_t dstXInBytes;
    size_t dstY;
    size_t dstZ;
    size_t dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch;
    size_t dstHeight;
    size_t WidthInBytes;
    size_t Height;
    size_t Depth;
} CUDA_MEMCPY3D;

typedef struct {
    size_t srcXInBytes;
    size_t srcY;
    size_t srcZ;
    size_t srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    CUcontext srcContext;
    size_t srcPitch;
    size_t srcHeight;
    size_t dstXInBytes;
    size_t dstY;
    size_t dstZ;
    size_t dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    CUcontext dstContext;
    size_t dstPitch;
    size_t dstHeight;
    size_t WidthInBytes;
    size_t Height;
    size_t Depth;
} CUDA_MEMCPY3D_PEER;

typedef enum {
    CU_MEMCPY_FLAG_DEFAULT = 0x0,
    CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 0x1,
} CUmemcpyFlags;

typedef enum {
    CU_MEMCPY_SRC_ACCESS_ORDER_INVALID = 0x0,
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 0x1,
    CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 0x2,
    CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 0x3,
    CU_MEMCPY_SRC_ACCESS_ORDER_MAX = 0x7FFFFFFF,
} CUmemcpySrcAccessOrder;

typedef struct {
    CUmemcpySrcAccessOrder srcAccessOrder;
    CUmemLocation srcLocHint;
    CUmemLocation dstLocHint;
    unsigned int flags;
} CUmemcpyAttributes;

typedef enum {
    CU_MEMCPY_OPERAND_TYPE_POINTER = 0x1,
    CU_MEMCPY_OPERAND_TYPE_ARRAY = 0x2,
    CU_MEMCPY_OPERAND_TYPE_MAX = 0x7FFFFFFF,
} CUmemcpy3DOperandType;

typedef struct {
    size_t x;
    size_t y;
    size_t z;
} CUoffset3D;

typedef struct {
    size_t width;
    size_t height;
    size_t depth;
} CUextent3D;

typedef struct {
    CUmemcpy3DOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            size_t rowLength;
            size_t layerHeight;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUarray array;
            CUoffset3D offset;
        } array;
    } op;
} CUmemcpy3DOperand;

typedef struct {
    CUmemcpy3DOperand src;
    CUmemcpy3DOperand dst;
    CUextent3D extent;
    CUmemcpySrcAccessOrder srcAccessOrder;
    unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
__typeof__(cuMemcpy) cuMemcpy_ptds;
CUresult cuMemcpyPeer(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,
                      CUcontext src_context, size_t bytes);
__typeof__(cuMemcpyPeer) cuMemcpyPeer_ptds;
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes);
__typeof__(cuMemcpyHtoD_v2) cuMemcpyHtoD_v2_ptds;
CUresult cuMemcpyDtoH_v2(void *dst_host, CUdeviceptr src_device, size_t bytes);
__typeof__(cuMemcpyDtoH_v2) cuMemcpyDtoH_v2_ptds;
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes);
__typeof__(cuMemcpyDtoD_v2) cuMemcpyDtoD_v2_ptds;
CUresult cuMemcpyDtoA_v2(CUarray dst_array, size_t dst_offset, CUdeviceptr src_device,
                         size_t bytes);
__typeof__(cuMemcpyDtoA_v2) cuMemcpyDtoA_v2_ptds;
CUresult cuMemcpyAtoD_v2(CUdeviceptr dst_device, CUarray src_array, size_t src_offset,
                         size_t bytes);
__typeof__(cuMemcpyAtoD_v2) cuMemcpyAtoD_v2_ptds;
CUresult cuMemcpyHtoA_v2(CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes);
__typeof__(cuMemcpyHtoA_v2) cuMemcpyHtoA_v2_ptds;
CUresult cuMemcpyAtoH_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes);
__typeof__(cuMemcpyAtoH_v2) cuMemcpyAtoH_v2_ptds;
CUresult cuMemcpyAtoA_v2(CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset,
                         size_t bytes);
__typeof__(cuMemcpyAtoA_v2) cuMemcpyAtoA_v2_ptds;
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy);
__typeof__(cuMemcpy2D_v2) cuMemcpy2D_v2_ptds;
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy);
__typeof__(cuMemcpy2DUnaligned_v2) cuMemcpy2DUnaligned_v2_ptds;
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy);
__typeof__(cuMemcpy3D_v2) cuMemcpy3D_v2_ptds;
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy);
__typeof__(cuMemcpy3DPeer) cuMemcpy3DPeer_ptds;

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
__typeof__(cuMemcpyAsync) cuMemcpyAsync_ptsz;
CUresult cuMemcpyPeerAsync(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,
                           CUcontext src_context, size_t bytes, CUstream stream);
__typeof__(cuMemcpyPeerAsync) cuMemcpyPeerAsync_ptsz;
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes,
                              CUstream stream);
__typeof__(cuMemcpyHtoDAsync_v2) cuMemcpyHtoDAsync_v2_ptsz;
CUresult cuMemcpyDtoHAsync_v2(void *dst_host, CUdeviceptr src_device, size_t bytes,
                              CUstream stream);
__typeof__(cuMemcpyDtoHAsync_v2) cuMemcpyDtoHAsync_v2_ptsz;
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes,
                              CUstream stream);
__typeof__(cuMemcpyDtoDAsync_v2) cuMemcpyDtoDAsync_v2_ptsz;
CUresult cuMemcpyHtoAAsync_v2(CUarray dst_array, size_t dst_offset, const void *src_host,
                              size_t bytes, CUstream stream);
__typeof__(cuMemcpyHtoAAsync_v2) cuMemcpyHtoAAsync_v2_ptsz;
CUresult cuMemcpyAtoHAsync_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes,
                              CUstream stream);
__typeof__(cuMemcpyAtoHAsync_v2) cuMemcpyAtoHAsync_v2_ptsz;
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream);
__typeof__(cuMemcpy2DAsync_v2) cuMemcpy2DAsync_v2_ptsz;
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream);
__typeof__(cuMemcpy3DAsync_v2) cuMemcpy3DAsync_v2_ptsz;
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream);
__typeof__(cuMemcpy3DPeerAsync) cuMemcpy3DPeerAsync_ptsz;

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs,
                            size_t *fail_idx, CUstream stream);
__typeof__(cuMemcpyBatchAsync) cuMemcpyBatchAsync_ptsz;
CUresult cuMemcpy3DBatchAsync(size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, size_t *fail_idx,
                              unsigned long long flags, CUstream stream);
__typeof__(cuMemcpy3DBatchAsync) cuMemcpy3DBatchAsync_ptsz;
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs,
                               CUstream stream);
__typeof__(cuMemcpyBatchAsync_v2) cuMemcpyBatchAsync_v2_ptsz;
CUresult cuMemcpy3DBatchAsync_v2(size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list,
                                 unsigned long long flags, CUstream stream);
__typeof__(cuMemcpy3DBatchAsync_v2) cuMemcpy3DBatchAsync_v2_ptsz;
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                     CUmemcpyAttributes *attr, CUstream stream);
__typeof__(cuMemcpyWithAttributesAsync) cuMemcpyWithAttributesAsync_ptsz;
CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                       CUstream stream);
__typeof__(cuMemcpy3DWithAttributesAsync) cuMemcpy3DWithAttributesAsync_ptsz;

CUresult cuMemsetD8_v2(CUdeviceptr dst_device, unsigned char value, size_t count);
__typeof__(cuMemsetD8_v2) cuMemsetD8_v2_ptds;
CUresult cuMemsetD16_v2(CUdeviceptr dst_device, unsigned short value, size_t count);
__typeof__(cuMemsetD16_v2) cuMemsetD16_v2_ptds;
CUresult cuMemsetD32_v2(CUdeviceptr dst_device, unsigned value, size_t count);
__typeof__(cuMemsetD32_v2) cuMemsetD32_v2_ptds;
CUresult cuMemsetD2D8_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned char value,
                         size_t width, size_t height);
__typeof__(cuMemsetD2D8_v2) cuMemsetD2D8_v2_ptds;
CUresult cuMemsetD2D16_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned short value,
                          size_t width, size_t height);
__typeof__(cuMemsetD2D16_v2) cuMemsetD2D16_v2_ptds;
CUresult cuMemsetD2D32_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned value, size_t width,
                          size_t height);
__typeof__(cuMemsetD2D32_v2) cuMemsetD2D32_v2_ptds;
CUresult cuMemsetD8Async(CUdeviceptr dst_device, unsigned char value, size_t count,
                         CUstream stream);
__typeof__(cuMemsetD8Async) cuMemsetD8Async_ptsz;
CUresult cuMemsetD16Async(CUdeviceptr dst_device, unsigned short value, size_t count,
                          CUstream stream);
__typeof__(cuMemsetD16Async) cuMemsetD16Async_ptsz;
CUresult cuMemsetD32Async(CUdeviceptr dst_device, unsigned value, size_t count, CUstream stream);
__typeof__(cuMemsetD32Async) cuMemsetD32Async_ptsz;
CUresult cuMemsetD2D8Async(CUdeviceptr dst_device, size_t dst_pitch, unsigned char value,
                           size_t width, size_t height, CUstream stream);
__typeof__(cuMemsetD2D8Async) cuMemsetD2D8Async_ptsz;
CUresult cuMemsetD2D16Async(CUdeviceptr dst_device, size_t dst_pitch, unsigned short value,
                            size_t width, size_t height, CUstream stream);
__typeof__(cuMemsetD2D16Async) cuMemsetD2D16Async_ptsz;
CUresult cuMemsetD2D32Async(CUdeviceptr dst_device, size_t dst_pitch, unsigned value, size_t width,
                            size_t height, CUstream stream);
__typeof__(cuMemsetD2D32Async) cuMemsetD2D32Async_ptsz;

typedef enum {
    CU_MEM_DECOMPRESS_UNSUPPORTED = 0,
    CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE = 1 << 0,
    CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY = 1 << 1,
    CU_MEM_DECOMPRESS_ALGORITHM_LZ4 = 1 << 2,
} CUmemDecompressAlgorithm;

typedef struct {
    size_t srcNumBytes;
    size_t dstNumBytes;
    cuuint32_t *dstActBytes;
    const void *src;
    void *dst;
    CUmemDecompressAlgorithm algo;
    unsigned char padding[20];
} CUmemDecompressParams;

CUresult cuMemBatchDecompressAsync(CUmemDecompressParams *params_array, size_t count,
                                   unsigned flags, size_t *error_index, CUstream stream);
__typeof__(cuMemBatchDecompressAsync) cuMemBatchDecompressAsync_ptsz;
