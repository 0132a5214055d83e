/*
 * Streams, events, and the memory operations that streams wait for and do.
 */
#pragma once

#include "cuda_launch.h"

typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *user_data);

typedef enum {
    CU_STREAM_DEFAULT = 0,
    CU_STREAM_NON_BLOCKING = 1,
} CUstream_flags;

typedef enum {
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_BLOCKING_SYNC = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_EVENT_INTERPROCESS = 4,
} CUevent_flags;

typedef enum {
    CU_EVENT_RECORD_DEFAULT = 0,
    CU_EVENT_RECORD_EXTERNAL = 1,
} CUevent_record_flags;

typedef enum {
    CU_EVENT_WAIT_DEFAULT = 0,
    CU_EVENT_WAIT_EXTERNAL = 1,
} CUevent_wait_flags;

typedef enum {
    CU_HOST_TASK_BLOCKING = 0,
    CU_HOST_TASK_SPINWAIT = 1,
} CUhostTaskSyncMode;

typedef enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
} CUstreamCaptureStatus;

typedef enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} CUstreamCaptureMode;

typedef enum {
    CU_STREAM_ADD_CAPTURE_DEPENDENCIES = 0,
    CU_STREAM_SET_CAPTURE_DEPENDENCIES = 1,
} CUstreamUpdateCaptureDependencies_flags;

/* --- memory operations in streams ---------------------------------------------------------- */

typedef enum {
    CU_STREAM_WAIT_VALUE_GEQ = 0,
    CU_STREAM_WAIT_VALUE_EQ = 1,
    CU_STREAM_WAIT_VALUE_AND = 2,
    CU_STREAM_WAIT_VALUE_NOR = 3,
    CU_STREAM_WAIT_VALUE_FLUSH = 1 << 30,
} CUstreamWaitValue_flags;

typedef enum {
    CU_STREAM_WRITE_VALUE_DEFAULT = 0,
    CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 1,
} CUstreamWriteValue_flags;

typedef enum {
    CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
    CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
    CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
    CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
    CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
    CU_STREAM_MEM_OP_BARRIER = 6,
    CU_STREAM_MEM_OP_ATOMIC_REDUCTION = 8,
} CUstreamBatchMemOpType;

typedef enum {
    CU_STREAM_ATOMIC_REDUCTION_OP_ADD = 0,
    CU_STREAM_ATOMIC_REDUCTION_OP_AND = 5,
    CU_STREAM_ATOMIC_REDUCTION_OP_OR = 6,
} CUstreamAtomicReductionOpType;

typedef enum {
    CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32 = 0x0e,
    CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64 = 0x16,
} CUstreamAtomicReductionDataType;

typedef union {
    CUstreamBatchMemOpType operation;
    struct {
        CUstreamBatchMemOpType operation;
        CUdeviceptr address;
        union {
            cuuint32_t value;
            cuuint64_t value64;
        };
        unsigned int flags;
        CUdeviceptr alias;
    } waitValue;
    struct {
        CUstreamBatchMemOpType operation;
        CUdeviceptr address;
        union {
            cuuint32_t value;
            cuuint64_t value64;
        };
        unsigned int flags;
        CUdeviceptr alias;
    } writeValue;
    struct {
        CUstreamBatchMemOpType operation;
        unsigned int flags;
        CUstreamAtomicReductionOpType reductionOp;
        CUstreamAtomicReductionDataType dataType;
        CUdeviceptr address;
        cuuint64_t value;
        CUdeviceptr alias;
    } atomicReduction;
    cuuint64_t pad[6];
} CUstreamBatchMemOpParams;

CUresult cuCtxRecordEvent(CUcontext context, CUevent event);
CUresult cuCtxWaitEvent(CUcontext context, CUevent event);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end);
CUresult cuEventQuery(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
__typeof__(cuEventRecord) cuEventRecord_ptsz;
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
__typeof__(cuEventRecordWithFlags) cuEventRecordWithFlags_ptsz;
CUresult cuEventSynchronize(CUevent event);
CUresult cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority);
CUresult cuGreenCtxWaitEvent(CUgreenCtx context, CUevent event);
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user_data,
                             unsigned flags);
__typeof__(cuStreamAddCallback) cuStreamAddCallback_ptsz;
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length,
                                unsigned flags);
__typeof__(cuStreamAttachMemAsync) cuStreamAttachMemAsync_ptsz;
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations,
                            unsigned flags);
__typeof__(cuStreamBatchMemOp) cuStreamBatchMemOp_ptsz;
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                               CUstreamBatchMemOpParams *operations, unsigned flags);
__typeof__(cuStreamBatchMemOp_v2) cuStreamBatchMemOp_v2_ptsz;
CUresult cuStreamCopyAttributes(CUstream dst_stream, CUstream src_stream);
__typeof__(cuStreamCopyAttributes) cuStreamCopyAttributes_ptsz;
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value);
__typeof__(cuStreamGetAttribute) cuStreamGetAttribute_ptsz;
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
__typeof__(cuStreamGetCtx) cuStreamGetCtx_ptsz;
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green);
__typeof__(cuStreamGetCtx_v2) cuStreamGetCtx_v2_ptsz;
CUresult cuStreamGetDevResource(CUstream stream, CUdevResource *resource, CUdevResourceType type);
__typeof__(cuStreamGetDevResource) cuStreamGetDevResource_ptsz;
CUresult cuStreamGetDevice(CUstream stream, CUdevice *device);
__typeof__(cuStreamGetDevice) cuStreamGetDevice_ptsz;
CUresult cuStreamGetFlags(CUstream stream, unsigned *flags);
__typeof__(cuStreamGetFlags) cuStreamGetFlags_ptsz;
CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *context);
CUresult cuStreamGetId(CUstream stream, unsigned long long *stream_id);
__typeof__(cuStreamGetId) cuStreamGetId_ptsz;
CUresult cuStreamGetPriority(CUstream stream, int *priority);
__typeof__(cuStreamGetPriority) cuStreamGetPriority_ptsz;
CUresult cuStreamQuery(CUstream stream);
__typeof__(cuStreamQuery) cuStreamQuery_ptsz;
CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute,
                              const CUstreamAttrValue *param);
__typeof__(cuStreamSetAttribute) cuStreamSetAttribute_ptsz;
CUresult cuStreamSynchronize(CUstream stream);
__typeof__(cuStreamSynchronize) cuStreamSynchronize_ptsz;
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
__typeof__(cuStreamWaitEvent) cuStreamWaitEvent_ptsz;
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags);
__typeof__(cuStreamWaitValue32) cuStreamWaitValue32_ptsz;
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned flags);
__typeof__(cuStreamWaitValue32_v2) cuStreamWaitValue32_v2_ptsz;
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags);
__typeof__(cuStreamWaitValue64) cuStreamWaitValue64_ptsz;
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned flags);
__typeof__(cuStreamWaitValue64_v2) cuStreamWaitValue64_v2_ptsz;
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags);
__typeof__(cuStreamWriteValue32) cuStreamWriteValue32_ptsz;
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned flags);
__typeof__(cuStreamWriteValue32_v2) cuStreamWriteValue32_v2_ptsz;
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags);
__typeof__(cuStreamWriteValue64) cuStreamWriteValue64_ptsz;
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned flags);
__typeof__(cuStreamWriteValue64_v2) cuStreamWriteValue64_v2_ptsz;
