/*
 * Captures: what belongs to them, what they forbid, and what breaks them.
 */
#include <stdlib.h>

#include "graph.h"
#include "stream_set.h"

static struct capture *first_capture;
static uint64_t last_capture_id;

unsigned capture_ongoing;

static THREAD_LOCAL CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* Its address tells threads apart. */
CUstreamCaptureMode *capture_thread(void)
{
    return &thread_mode;
}

/* --- life ---------------------------------------------------------------------------------- */

static void release(struct capture *capture)
{
    if (--capture->references == 0)
        free(capture);
}

void captured_clear(struct captured *captured)
{
    node_set_clear(&captured->after);
    if (captured->capture != NULL)
        release(captured->capture);
    captured->capture = NULL;
}

static void join(struct stream *stream, struct capture *capture)
{
    capture->references++;
    stream->captured.capture = capture;
    stream->next_captured = capture->streams;
    capture->streams = stream;
    if (stream->is_blocking)
        stream->context->streams->capturing_blocking++;
}

static void leave(struct stream *stream)
{
    struct stream **link = &stream->captured.capture->streams;
    while (*link != stream)
        link = &(*link)->next_captured;
    *link = stream->next_captured;
    if (stream->is_blocking)
        stream->context->streams->capturing_blocking--;
    captured_clear(&stream->captured);
}

CUresult capture_begin(struct stream *stream, CUstreamCaptureMode mode, struct graph *graph,
                       const struct node_set *after)
{
    struct capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    capture->owns_graph = graph == NULL;
    capture->graph = graph;
    if (graph == NULL)
        result = graph_make(&capture->graph);
    if (result == CUDA_SUCCESS && after != NULL)
        result = node_set_copy(&stream->captured.after, after);
    if (result != CUDA_SUCCESS) {
        if (capture->owns_graph && capture->graph != NULL)
            graph_end(capture->graph);
        node_set_clear(&stream->captured.after);
        free(capture);
        return result;
    }
    capture->references = 1; /* the list's */
    capture->id = ++last_capture_id;
    capture->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    capture->mode = mode;
    capture->thread = &thread_mode;
    capture->origin = stream;
    capture->graph->is_capturing = true;
    capture->next = first_capture;
    first_capture = capture;
    __atomic_add_fetch(&capture_ongoing, 1, __ATOMIC_RELAXED);
    join(stream, capture);
    return CUDA_SUCCESS;
}

struct graph *capture_finish(struct capture *capture, bool keeps_graph)
{
    struct graph *graph = capture->graph;
    while (capture->streams != NULL)
        leave(capture->streams);
    struct capture **link = &first_capture;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    __atomic_sub_fetch(&capture_ongoing, 1, __ATOMIC_RELAXED);
    capture->status = CU_STREAM_CAPTURE_STATUS_NONE;
    graph->is_capturing = false;
    if (!keeps_graph && capture->owns_graph) {
        graph_end(graph);
        graph = NULL;
    }
    release(capture);
    return graph;
}

static void invalidate(struct capture *capture)
{
    if (capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

void capture_abandon(struct stream *stream)
{
    struct capture *capture = stream->captured.capture;
    if (capture == NULL)
        return;
    invalidate(capture);
    if (capture->origin == stream)
        capture_finish(capture, false);
    else
        leave(stream);
}

void capture_forget(void)
{
    first_capture = NULL;
    capture_ongoing = 0;
    thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* --- what is refused ----------------------------------------------------------------------- */

CUresult capture_spoil(struct stream *stream, CUresult error)
{
    if (stream->captured.capture != NULL)
        invalidate(stream->captured.capture);
    return error;
}

/* The legacy stream would wait for blocking streams that capture. */
static CUresult refuse_legacy(struct stream *legacy)
{
    for (struct stream *other = legacy->context->streams->first; other != NULL; other = other->next)
        if (other->is_blocking && other->captured.capture != NULL)
            invalidate(other->captured.capture);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult stream_captures(struct stream *stream, bool *captures)
{
    const struct capture *capture = stream->captured.capture;
    *captures = capture != NULL;
    if (LIKELY(capture == NULL)) {
        if (UNLIKELY(stream->is_legacy && stream->context->streams->capturing_blocking > 0))
            return refuse_legacy(stream);
        return CUDA_SUCCESS;
    }
    return capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE
               ? CUDA_SUCCESS
               : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult stream_refuse_waiting(struct stream *stream)
{
    bool captures = false;
    TRY(stream_captures(stream, &captures));
    return captures ? capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult event_refuse_captured(const struct captured *event)
{
    if (event->capture == NULL)
        return CUDA_SUCCESS;
    invalidate(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_refuse_waiting(struct context *context)
{
    CUresult result = CUDA_SUCCESS;
    if (__atomic_load_n(&capture_ongoing, __ATOMIC_RELAXED) == 0)
        return CUDA_SUCCESS;
    order_lock();
    for (struct stream *stream = context->streams->first; stream != NULL; stream = stream->next)
        if (stream->captured.capture != NULL)
            result = capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    order_unlock();
    return result;
}

/* Whether the capture forbids the calling thread what is unsafe. */
static bool forbids(const struct capture *capture)
{
    if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE ||
        thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == &thread_mode)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_refuse_unsafe_locked(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct capture *capture = first_capture; capture != NULL; capture = capture->next) {
        if (!forbids(capture))
            continue;
        invalidate(capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult capture_refuse_unsafe(void)
{
    if (LIKELY(__atomic_load_n(&capture_ongoing, __ATOMIC_RELAXED) == 0))
        return CUDA_SUCCESS;
    order_lock();
    const CUresult result = capture_refuse_unsafe_locked();
    order_unlock();
    return result;
}

CUresult capture_refuse_foreign(void)
{
    if (LIKELY(__atomic_load_n(&capture_ongoing, __ATOMIC_RELAXED) == 0))
        return CUDA_SUCCESS;
    bool is_own = false;
    order_lock();
    for (const struct capture *capture = first_capture; capture != NULL; capture = capture->next)
        is_own = is_own || capture->thread == &thread_mode;
    const CUresult result = is_own ? CUDA_SUCCESS : capture_refuse_unsafe_locked();
    order_unlock();
    return result;
}

CUresult stream_capturing(CUstream handle, enum default_stream null_means, bool *capturing)
{
    struct stream *stream = NULL;
    TRY(stream_lock(handle, null_means, &stream));
    const CUresult result = stream_captures(stream, capturing);
    order_unlock();
    return result;
}

/* --- what is captured ---------------------------------------------------------------------- */

CUresult capture_payload(struct stream *stream, struct payload *payload)
{
    struct node *node = NULL;
    TRY(graph_add(stream->captured.capture->graph, &stream->captured.after, payload, &node));
    stream->captured.after.count = 0;
    return node_set_add(&stream->captured.after, node, (CUgraphEdgeData){0});
}

CUresult capture_operation(struct stream *stream, const struct operation *operation)
{
    struct payload payload = {.type = operation->node_type, .context = stream->context};
    if (operation->node_type == CU_GRAPH_NODE_TYPE_EMPTY)
        return capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    payload.operation = malloc(sizeof *payload.operation);
    if (payload.operation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *payload.operation = *operation;
    return capture_payload(stream, &payload);
}

CUresult capture_external_record(struct stream *stream, CUevent event)
{
    struct payload payload = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .context = stream->context};
    payload.event = event;
    return capture_payload(stream, &payload);
}

CUresult capture_external_wait(struct stream *stream, CUevent event)
{
    struct payload payload = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .context = stream->context};
    payload.event = event;
    return capture_payload(stream, &payload);
}

CUresult capture_record(struct stream *stream, struct captured *event)
{
    captured_clear(event);
    TRY(node_set_copy(&event->after, &stream->captured.after));
    event->capture = stream->captured.capture;
    event->capture->references++;
    return CUDA_SUCCESS;
}

/* A stream outside of captures is drawn into one by waiting for an event of it. */
static CUresult draw_in(struct stream *stream, const struct captured *event)
{
    struct capture *capture = event->capture;
    if (capture->status == CU_STREAM_CAPTURE_STATUS_NONE)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->is_legacy) {
        invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    join(stream, capture);
    return node_set_copy(&stream->captured.after, &event->after);
}

CUresult capture_wait(struct stream *stream, const struct captured *event, bool is_recorded)
{
    struct capture *own = stream->captured.capture;
    if (event->capture == NULL) /* then the stream captures */
        return is_recorded ? capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                           : CUDA_SUCCESS;
    if (own == NULL)
        return draw_in(stream, event);
    if (own != event->capture) {
        const bool has_ended = event->capture->status == CU_STREAM_CAPTURE_STATUS_NONE;
        invalidate(event->capture);
        return capture_spoil(stream, has_ended ? CUDA_ERROR_CAPTURED_EVENT
                                               : CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    for (size_t i = 0; i < event->after.count; i++)
        TRY(node_set_add(&stream->captured.after, event->after.nodes[i], event->after.edges[i]));
    return CUDA_SUCCESS;
}
