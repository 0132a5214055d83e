/*
 * Functions of the program that run in the order of a stream.
 */
#include "graph.h"
#include "stream_set.h"

struct call {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *data;
};

static void run(struct context *context, void *arguments)
{
    const struct call *call = arguments;
    if (call->function != NULL)
        call->function(call->data);
    else
        call->callback(call->stream, context_check(context), call->data);
}

/* Under the lock. */
static CUresult append(struct stream *stream, const struct call *call)
{
    const struct task task = {
        .after_all = true,
        .on_host = true,
        .run = run,
        .arguments = call,
        .argument_bytes = sizeof *call,
    };
    return stream_append(stream, &task);
}

static CUresult launch(CUstream handle, enum default_stream null_means, CUhostFn function,
                       void *data, unsigned sync_mode)
{
    struct stream *stream = NULL;
    bool captures = false;
    REQUIRE(function != NULL && sync_mode <= CU_HOST_TASK_SPINWAIT);
    TRY(stream_lock(handle, null_means, &stream));
    CUresult result = stream_captures(stream, &captures);
    if (result == CUDA_SUCCESS && captures) {
        struct payload payload = {.type = CU_GRAPH_NODE_TYPE_HOST, .context = stream->context};
        payload.host.fn = function;
        payload.host.userData = data;
        payload.host.syncMode = sync_mode;
        result = capture_payload(stream, &payload);
    } else if (result == CUDA_SUCCESS) {
        result = append(stream, &(struct call){.function = function, .data = data});
    }
    order_unlock();
    return result;
}

ENTRY cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    return launch(stream, DEFAULT_LEGACY, function, data, CU_HOST_TASK_BLOCKING);
}

ENTRY cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data)
{
    return launch(stream, DEFAULT_PER_THREAD, function, data, CU_HOST_TASK_BLOCKING);
}

ENTRY cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned sync_mode)
{
    return launch(stream, DEFAULT_LEGACY, function, data, sync_mode);
}

ENTRY cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void *data, unsigned sync_mode)
{
    return launch(stream, DEFAULT_PER_THREAD, function, data, sync_mode);
}

static CUresult add_callback(CUstream handle, enum default_stream null_means,
                             CUstreamCallback callback, void *data, unsigned flags)
{
    struct stream *stream = NULL;
    REQUIRE(callback != NULL && flags == 0);
    TRY(stream_lock(handle, null_means, &stream));
    bool captures = false;
    CUresult result = stream_captures(stream, &captures);
    if (result == CUDA_SUCCESS && captures)
        result = capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result == CUDA_SUCCESS)
        result =
            append(stream, &(struct call){.callback = callback, .stream = handle, .data = data});
    order_unlock();
    return result;
}

ENTRY cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags)
{
    return add_callback(stream, DEFAULT_LEGACY, callback, data, flags);
}

ENTRY cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *data,
                               unsigned flags)
{
    return add_callback(stream, DEFAULT_PER_THREAD, callback, data, flags);
}
