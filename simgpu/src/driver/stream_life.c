/*
 * The life of streams: with their context, by the program, and across a fork.
 */
#include <stdlib.h>

#include "event_set.h"
#include "graph.h"
#include "stream_set.h"

/* How many contexts have streams on a device: the last one may drop all work there. */
static unsigned sets_open[SIM_DEVICES];

CUresult streams_open(struct context *context)
{
    struct stream_set *set = calloc(1, sizeof *set);
    if (set == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    set->floor.device = context->device->index;
    order_lock();
    context->streams = set;
    const CUresult result =
        stream_make(context, CU_STREAM_DEFAULT, STREAM_PRIORITY_LEAST, &set->legacy);
    if (result == CUDA_SUCCESS) {
        set->legacy->is_legacy = true;
        set->legacy->is_blocking = false;
        set->legacy->is_default = true;
        sets_open[context->device->index]++;
    } else {
        context->streams = NULL;
        free(set);
    }
    order_unlock();
    return result;
}

void streams_close(struct context *context)
{
    struct stream_set *set = context->streams;
    if (set == NULL)
        return;
    order_cancel(context);
    order_lock();
    while (set->first != NULL) {
        capture_abandon(set->first);
        stream_end(set->first);
    }
    position_clear(&set->floor);
    events_close(context);
    libraries_close(context);
    modules_close(context);
    context->streams = NULL;
    const bool was_last = --sets_open[context->device->index] == 0;
    order_unlock();
    if (was_last)
        sim_cancel(context->device->index);
    free(set);
}

void streams_forget(void)
{
    order_forget();
    capture_forget();
    stream_table_forget();
    events_forget();
    modules_forget();
    libraries_forget();
    links_forget();
    graphs_forget();
    graph_execs_forget();
    for (unsigned i = 0; i < SIM_DEVICES; i++)
        sets_open[i] = 0;
}

/* --- entries ------------------------------------------------------------------------------- */

static CUresult create(struct context *context, CUstream *handle, unsigned flags, int priority)
{
    REQUIRE(handle != NULL && (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) == 0);
    struct stream *stream = NULL;
    order_lock();
    const CUresult result = stream_make(context, flags, priority, &stream);
    order_unlock();
    if (result == CUDA_SUCCESS)
        *handle = stream_handle(stream);
    return result;
}

ENTRY cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
    ENTER(context);
    return create(context, handle, flags, priority);
}

ENTRY cuStreamCreate(CUstream *handle, unsigned flags)
{
    ENTER(context);
    return create(context, handle, flags, STREAM_PRIORITY_LEAST);
}

ENTRY cuGreenCtxStreamCreate(CUstream *handle, CUgreenCtx green, unsigned flags, int priority)
{
    struct context *context = NULL;
    TRY(context_of_green(green, &context));
    /* A green context has no legacy stream that could be waited for. */
    REQUIRE((flags & CU_STREAM_NON_BLOCKING) != 0);
    return create(context, handle, flags, priority);
}

ENTRY cuStreamDestroy_v2(CUstream handle)
{
    struct stream *stream = NULL;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_lock(handle, DEFAULT_LEGACY, &stream));
    const bool is_default = stream->is_default;
    if (!is_default) {
        capture_abandon(stream);
        stream_end(stream);
    }
    order_unlock();
    return is_default ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
TWIN(cuStreamDestroy, cuStreamDestroy_v2);

static CUresult synchronize(CUstream handle, enum default_stream null_means)
{
    struct stream *stream = NULL;
    struct position end = {0};
    TRY(stream_lock(handle, null_means, &stream));
    struct context *context = stream->context;
    CUresult result = stream_refuse_waiting(stream);
    /* Waiting on the legacy stream waits for what it would wait for. */
    if (result == CUDA_SUCCESS && stream->is_legacy)
        result = stream_append(stream, &(struct task){0});
    if (result == CUDA_SUCCESS)
        position_set(&end, &stream->tail);
    order_unlock();
    TRY(result);
    TRY(position_wait(&end));
    pools_settle(context->device);
    return context_check(context);
}

ENTRY cuStreamSynchronize(CUstream handle)
{
    return synchronize(handle, DEFAULT_LEGACY);
}

ENTRY cuStreamSynchronize_ptsz(CUstream handle)
{
    return synchronize(handle, DEFAULT_PER_THREAD);
}

static CUresult query(CUstream handle, enum default_stream null_means)
{
    struct stream *stream = NULL;
    TRY(stream_lock(handle, null_means, &stream));
    CUresult result = stream_refuse_waiting(stream);
    if (result == CUDA_SUCCESS && stream->is_legacy)
        result = stream_append(stream, &(struct task){0});
    if (result == CUDA_SUCCESS && !position_reached(&stream->tail))
        result = CUDA_ERROR_NOT_READY;
    order_unlock();
    return result;
}

ENTRY cuStreamQuery(CUstream handle)
{
    return query(handle, DEFAULT_LEGACY);
}

ENTRY cuStreamQuery_ptsz(CUstream handle)
{
    return query(handle, DEFAULT_PER_THREAD);
}
