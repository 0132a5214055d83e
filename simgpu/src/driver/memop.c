/*
 * Memory operations in streams. Device addresses are this process's own, and so can be accessed.
 */
#include "memop.h"

#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "stream_set.h"

enum { BATCH_MOST = 256 };

/* --- the operations themselves ------------------------------------------------------------- */

static bool is_met(const void *arguments)
{
    const CUstreamBatchMemOpParams *operation = arguments;
    const bool is_wide = operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    const uint64_t wanted = is_wide ? operation->waitValue.value64 : operation->waitValue.value;
    const void *address = (const void *)(uintptr_t)operation->waitValue.address;
    const uint64_t value = is_wide ? __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE)
                                   : __atomic_load_n((const uint32_t *)address, __ATOMIC_ACQUIRE);
    switch (operation->waitValue.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* in a circle: later, not larger */
        return is_wide ? (int64_t)(value - wanted) >= 0
                       : (int32_t)((uint32_t)value - (uint32_t)wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (value & wanted) != 0;
    default:
        return (~(value | wanted) & (is_wide ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

static void write_value(struct context *context, void *arguments)
{
    (void)context;
    const CUstreamBatchMemOpParams *operation = arguments;
    void *address = (void *)(uintptr_t)operation->writeValue.address;
    if (operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
        __atomic_store_n((uint64_t *)address, operation->writeValue.value64, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)address, operation->writeValue.value, __ATOMIC_RELEASE);
}

static void reduce(struct context *context, void *arguments)
{
    (void)context;
    const CUstreamBatchMemOpParams *operation = arguments;
    const uint64_t value = operation->atomicReduction.value;
    uint32_t *narrow = (uint32_t *)(uintptr_t)operation->atomicReduction.address;
    uint64_t *wide = (uint64_t *)(uintptr_t)operation->atomicReduction.address;
    const bool is_wide =
        operation->atomicReduction.dataType == CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64;
    switch (operation->atomicReduction.reductionOp) {
    case CU_STREAM_ATOMIC_REDUCTION_OP_ADD:
        is_wide ? __atomic_fetch_add(wide, value, __ATOMIC_ACQ_REL)
                : __atomic_fetch_add(narrow, (uint32_t)value, __ATOMIC_ACQ_REL);
        break;
    case CU_STREAM_ATOMIC_REDUCTION_OP_AND:
        is_wide ? __atomic_fetch_and(wide, value, __ATOMIC_ACQ_REL)
                : __atomic_fetch_and(narrow, (uint32_t)value, __ATOMIC_ACQ_REL);
        break;
    default:
        is_wide ? __atomic_fetch_or(wide, value, __ATOMIC_ACQ_REL)
                : __atomic_fetch_or(narrow, (uint32_t)value, __ATOMIC_ACQ_REL);
        break;
    }
}

bool memop_task(const CUstreamBatchMemOpParams *operation, struct task *task)
{
    *task = (struct task){
        .after_all = true,
        .arguments = operation,
        .argument_bytes = sizeof *operation,
    };
    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        task->ready = is_met;
        return true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        task->run = write_value;
        return true;
    case CU_STREAM_MEM_OP_ATOMIC_REDUCTION:
        task->run = reduce;
        return true;
    default:
        return false; /* barriers order what is in order here anyway */
    }
}

/* --- checks -------------------------------------------------------------------------------- */

static CUresult check_place(CUdeviceptr address, size_t bytes)
{
    REQUIRE(address % bytes == 0 && memory_holds(address, bytes));
    return CUDA_SUCCESS;
}

CUresult memop_check(const CUstreamBatchMemOpParams *operations, unsigned count)
{
    const unsigned wait_flags = 3u | (unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
    REQUIRE(operations != NULL && count < BATCH_MOST);
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *operation = &operations[i];
        switch (operation->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            REQUIRE((operation->waitValue.flags & ~wait_flags) == 0);
            TRY(check_place(operation->waitValue.address,
                            operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? 8 : 4));
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            REQUIRE(operation->writeValue.flags <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
            TRY(check_place(operation->writeValue.address,
                            operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4));
            break;
        case CU_STREAM_MEM_OP_ATOMIC_REDUCTION:
            TRY(check_place(
                operation->atomicReduction.address,
                operation->atomicReduction.dataType == CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64 ? 8
                                                                                              : 4));
            break;
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        case CU_STREAM_MEM_OP_BARRIER:
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* --- in streams ---------------------------------------------------------------------------- */

/* Under the lock: at once when the stream has nothing to do, else when it is its turn. */
static CUresult append(struct stream *stream, const CUstreamBatchMemOpParams *operation)
{
    struct task task;
    if (!memop_task(operation, &task))
        return CUDA_SUCCESS;
    TRY(stream_append(stream, &(struct task){0}));
    if (!position_reached(&stream->tail) || (task.ready != NULL && !task.ready(operation)))
        return stream_append(stream, &task);
    if (task.run != NULL) {
        CUstreamBatchMemOpParams copy = *operation;
        task.run(stream->context, &copy);
    }
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult capture(struct stream *stream, const CUstreamBatchMemOpParams *operations,
                        unsigned count, unsigned flags)
{
    struct payload payload = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .context = stream->context};
    payload.batch.operations = calloc(count > 0 ? count : 1, sizeof *operations);
    if (payload.batch.operations == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(payload.batch.operations, operations, count * sizeof *operations);
    payload.batch.count = count;
    payload.batch.flags = flags;
    return capture_payload(stream, &payload);
}

static CUresult enqueue(CUstream handle, enum default_stream null_means,
                        const CUstreamBatchMemOpParams *operations, unsigned count, unsigned flags)
{
    struct stream *stream = NULL;
    bool captures = false;
    TRY(driver_check());
    REQUIRE(flags == 0);
    TRY(memop_check(operations, count));
    TRY(stream_lock(handle, null_means, &stream));
    CUresult result = stream_captures(stream, &captures);
    if (result == CUDA_SUCCESS && captures)
        result = capture(stream, operations, count, flags);
    for (unsigned i = 0; result == CUDA_SUCCESS && !captures && i < count; i++)
        result = append(stream, &operations[i]);
    order_unlock();
    return result;
}

/* --- entries ------------------------------------------------------------------------------- */

ENTRY cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations,
                            unsigned flags)
{
    return enqueue(stream, DEFAULT_LEGACY, operations, count, flags);
}
TWIN(cuStreamBatchMemOp, cuStreamBatchMemOp_v2);

ENTRY cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams *operations, unsigned flags)
{
    return enqueue(stream, DEFAULT_PER_THREAD, operations, count, flags);
}
TWIN(cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2_ptsz);

/* The eight single operations, each for both kinds of default stream. */
#define SINGLE(name, type, member, field, kind)                                                    \
    ENTRY name##_v2(CUstream stream, CUdeviceptr address, type value, unsigned flags)              \
    {                                                                                              \
        const CUstreamBatchMemOpParams operation = {                                               \
            .member = {.operation = kind, .address = address, .field = value, .flags = flags}};    \
        return enqueue(stream, DEFAULT_LEGACY, &operation, 1, 0);                                  \
    }                                                                                              \
    TWIN(name, name##_v2);                                                                         \
    ENTRY name##_v2_ptsz(CUstream stream, CUdeviceptr address, type value, unsigned flags)         \
    {                                                                                              \
        const CUstreamBatchMemOpParams operation = {                                               \
            .member = {.operation = kind, .address = address, .field = value, .flags = flags}};    \
        return enqueue(stream, DEFAULT_PER_THREAD, &operation, 1, 0);                              \
    }                                                                                              \
    TWIN(name##_ptsz, name##_v2_ptsz)

SINGLE(cuStreamWaitValue32, cuuint32_t, waitValue, value, CU_STREAM_MEM_OP_WAIT_VALUE_32);
SINGLE(cuStreamWaitValue64, cuuint64_t, waitValue, value64, CU_STREAM_MEM_OP_WAIT_VALUE_64);
SINGLE(cuStreamWriteValue32, cuuint32_t, writeValue, value, CU_STREAM_MEM_OP_WRITE_VALUE_32);
SINGLE(cuStreamWriteValue64, cuuint64_t, writeValue, value64, CU_STREAM_MEM_OP_WRITE_VALUE_64);
