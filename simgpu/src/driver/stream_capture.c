/*
 * The calls that begin, end and look at captures.
 */
#include "graph.h"
#include "stream_set.h"

/* --- beginning ----------------------------------------------------------------------------- */

static CUresult begin(CUstream handle, enum default_stream null_means, CUstreamCaptureMode mode,
                      struct graph *graph, const struct node_set *after)
{
    struct stream *stream = NULL;
    REQUIRE((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    TRY(stream_lock(handle, null_means, &stream));
    CUresult result = CUDA_SUCCESS;
    if (stream->is_legacy)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (stream->captured.capture != NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (graph != NULL && graph->is_capturing)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = capture_begin(stream, mode, graph, after);
    order_unlock();
    return result;
}

ENTRY cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, DEFAULT_LEGACY, mode, NULL, NULL);
}

ENTRY cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, DEFAULT_PER_THREAD, mode, NULL, NULL);
}

ENTRY cuStreamBeginCapture(CUstream stream)
{
    return begin(stream, DEFAULT_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL);
}

ENTRY cuStreamBeginCapture_ptsz(CUstream stream)
{
    return begin(stream, DEFAULT_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL);
}

static CUresult begin_to_graph(CUstream stream, enum default_stream null_means, CUgraph handle,
                               const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                               size_t count, CUstreamCaptureMode mode)
{
    struct graph *graph = NULL;
    struct node_set after = {0};
    TRY(driver_check());
    order_lock();
    CUresult result = graph_get(handle, &graph);
    if (result == CUDA_SUCCESS)
        result = node_set_read(&after, graph, dependencies, data, count);
    order_unlock();
    if (result == CUDA_SUCCESS)
        result = begin(stream, null_means, mode, graph, &after);
    node_set_clear(&after);
    return result;
}

ENTRY cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                  const CUgraphEdgeData *data, size_t count,
                                  CUstreamCaptureMode mode)
{
    return begin_to_graph(stream, DEFAULT_LEGACY, graph, dependencies, data, count, mode);
}

ENTRY cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                       const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                                       size_t count, CUstreamCaptureMode mode)
{
    return begin_to_graph(stream, DEFAULT_PER_THREAD, graph, dependencies, data, count, mode);
}

/* --- ending -------------------------------------------------------------------------------- */

/* Whether everything that other streams have captured comes before the end of the origin. */
static bool is_joined(const struct capture *capture)
{
    const uint64_t mark = graph_mark_before(&capture->origin->captured.after);
    for (const struct stream *stream = capture->streams; stream != NULL;
         stream = stream->next_captured)
        for (size_t i = 0; i < stream->captured.after.count; i++)
            if (stream->captured.after.nodes[i]->mark != mark)
                return false;
    return true;
}

/* Under the lock. */
static CUresult finish(struct stream *stream, CUgraph *handle)
{
    struct capture *capture = stream->captured.capture;
    if (capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != capture_thread())
        return capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CUresult result = CUDA_SUCCESS;
    if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    struct graph *graph = capture_finish(capture, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        *handle = graph_handle(graph);
    return result;
}

static CUresult end(CUstream handle, enum default_stream null_means, CUgraph *graph)
{
    struct stream *stream = NULL;
    REQUIRE(graph != NULL);
    *graph = NULL;
    TRY(stream_lock(handle, null_means, &stream));
    const CUresult result = finish(stream, graph);
    order_unlock();
    return result;
}

ENTRY cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end(stream, DEFAULT_LEGACY, graph);
}

ENTRY cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end(stream, DEFAULT_PER_THREAD, graph);
}

ENTRY cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    TRY(driver_check());
    REQUIRE(mode != NULL && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureMode *own = capture_thread();
    const CUstreamCaptureMode before = *own;
    *own = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* --- looking ------------------------------------------------------------------------------- */

/* What GetCaptureInfo may be asked for; all but the status may be missing. */
struct question {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **dependencies;
    const CUgraphEdgeData **edges;
    size_t *count;
};

static bool has_edge_data(const struct node_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->edges[i].from_port != 0 || set->edges[i].to_port != 0 || set->edges[i].type != 0)
            return true;
    return false;
}

/* Under the lock. Asking breaks nothing, not even about the legacy stream. */
static CUresult answer(const struct stream *stream, const struct question *question)
{
    const struct capture *capture = stream->captured.capture;
    const struct node_set *after = &stream->captured.after;
    if (stream->is_legacy && stream->context->streams->capturing_blocking > 0)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *question->status = capture != NULL ? capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
    if (*question->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (question->dependencies != NULL && question->edges == NULL && has_edge_data(after))
        return CUDA_ERROR_LOSSY_QUERY;
    if (question->id != NULL)
        *question->id = capture->id;
    if (question->graph != NULL)
        *question->graph = graph_handle(capture->graph);
    if (question->dependencies != NULL)
        *question->dependencies = (const CUgraphNode *)(const void *)after->nodes;
    if (question->edges != NULL)
        *question->edges = after->edges;
    if (question->count != NULL)
        *question->count = after->count;
    return CUDA_SUCCESS;
}

static CUresult ask(CUstream handle, enum default_stream null_means,
                    const struct question *question)
{
    struct stream *stream = NULL;
    REQUIRE(question->status != NULL);
    REQUIRE(question->edges == NULL || question->dependencies != NULL);
    TRY(stream_lock(handle, null_means, &stream));
    const CUresult result = answer(stream, question);
    order_unlock();
    return result;
}

ENTRY cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return ask(stream, DEFAULT_LEGACY, &(struct question){.status = status});
}

ENTRY cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    return ask(stream, DEFAULT_PER_THREAD, &(struct question){.status = status});
}

ENTRY cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return ask(stream, DEFAULT_LEGACY, &(struct question){.status = status, .id = id});
}

ENTRY cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return ask(stream, DEFAULT_PER_THREAD, &(struct question){.status = status, .id = id});
}

ENTRY cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    return ask(stream, DEFAULT_LEGACY,
               &(struct question){status, id, graph, dependencies, NULL, count});
}

ENTRY cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                     CUgraph *graph, const CUgraphNode **dependencies,
                                     size_t *count)
{
    return ask(stream, DEFAULT_PER_THREAD,
               &(struct question){status, id, graph, dependencies, NULL, count});
}

ENTRY cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *graph, const CUgraphNode **dependencies,
                                const CUgraphEdgeData **edges, size_t *count)
{
    return ask(stream, DEFAULT_LEGACY,
               &(struct question){status, id, graph, dependencies, edges, count});
}

ENTRY cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                     CUgraph *graph, const CUgraphNode **dependencies,
                                     const CUgraphEdgeData **edges, size_t *count)
{
    return ask(stream, DEFAULT_PER_THREAD,
               &(struct question){status, id, graph, dependencies, edges, count});
}

/* --- changing ------------------------------------------------------------------------------ */

/* Under the lock. */
static CUresult change(struct stream *stream, const CUgraphNode *dependencies,
                       const CUgraphEdgeData *data, size_t count, unsigned flags)
{
    struct capture *capture = stream->captured.capture;
    struct node_set wanted = {0};
    if (capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult result = flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES
                          ? node_set_copy(&wanted, &stream->captured.after)
                          : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = node_set_read(&wanted, capture->graph, dependencies, data, count);
    if (result == CUDA_SUCCESS)
        result = node_set_copy(&stream->captured.after, &wanted);
    node_set_clear(&wanted);
    return result;
}

static CUresult update(CUstream handle, enum default_stream null_means,
                       const CUgraphNode *dependencies, const CUgraphEdgeData *data, size_t count,
                       unsigned flags)
{
    struct stream *stream = NULL;
    REQUIRE(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    TRY(stream_lock(handle, null_means, &stream));
    const CUresult result = change(stream, dependencies, data, count, flags);
    order_unlock();
    return result;
}

ENTRY cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                           const CUgraphEdgeData *data, size_t count,
                                           unsigned flags)
{
    return update(stream, DEFAULT_LEGACY, dependencies, data, count, flags);
}

ENTRY cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *dependencies,
                                                const CUgraphEdgeData *data, size_t count,
                                                unsigned flags)
{
    return update(stream, DEFAULT_PER_THREAD, dependencies, data, count, flags);
}

ENTRY cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count,
                                        unsigned flags)
{
    return update(stream, DEFAULT_LEGACY, dependencies, NULL, count, flags);
}

ENTRY cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *dependencies,
                                             size_t count, unsigned flags)
{
    return update(stream, DEFAULT_PER_THREAD, dependencies, NULL, count, flags);
}
