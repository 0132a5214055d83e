/*
 * Events: recording, waiting, timing.
 */
#include "event_set.h"

#include "shared_event.h"

static struct table events = TABLE(struct event, 1 << 20);

/* --- objects ------------------------------------------------------------------------------- */

CUresult event_find(CUevent handle, struct event **event)
{
    *event = (struct event *)(uintptr_t)handle;
    return table_holds(&events, *event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult event_lock(CUevent handle, struct event **event)
{
    TRY(driver_check());
    order_lock();
    CUresult result = event_find(handle, event);
    if (result == CUDA_SUCCESS)
        result = context_check((*event)->context);
    if (result != CUDA_SUCCESS)
        order_unlock();
    return result;
}

static void end_event(struct event *event)
{
    position_clear(&event->position);
    captured_clear(&event->captured);
    if (event->shared != NULL)
        shared_event_end(event->shared);
    table_give(&events, event);
}

static void close_one(void *object, void *context)
{
    struct event *event = object;
    if (event->context == context)
        end_event(event);
}

void events_close(struct context *context)
{
    table_each(&events, close_one, context);
}

void events_forget(void)
{
    table_forget(&events);
    shared_events_forget();
}

void event_place(struct event *event, const struct position *position)
{
    position_set(&event->position, position);
    event->recorded_ns = (event->flags & CU_EVENT_DISABLE_TIMING) == 0 ? sim_now() : 0;
    event->reached_ns = 0;
    event->is_recorded = true;
    captured_clear(&event->captured);
    if (event->shared != NULL)
        shared_event_record(event->shared, event->context, position);
}

CUresult event_await(struct stream *stream, struct event *event)
{
    if (event->shared != NULL)
        return shared_event_await(stream, event->shared);
    return event->is_recorded ? stream_await(stream, &event->position) : CUDA_SUCCESS;
}

/* --- life ---------------------------------------------------------------------------------- */

ENTRY cuEventCreate(CUevent *handle, unsigned flags)
{
    ENTER(context);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    REQUIRE(handle != NULL && (flags & ~known) == 0);
    REQUIRE((flags & CU_EVENT_INTERPROCESS) == 0 || (flags & CU_EVENT_DISABLE_TIMING) != 0);
    TRY(capture_refuse_foreign());
    order_lock();
    struct event *event = table_take(&events);
    if (event != NULL) {
        event->context = context;
        event->flags = flags;
        event->position.device = context->device->index;
        *handle = (CUevent)(uintptr_t)event;
    }
    order_unlock();
    return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

ENTRY cuEventDestroy_v2(CUevent handle)
{
    struct event *event = NULL;
    TRY(event_lock(handle, &event));
    end_event(event);
    order_unlock();
    return CUDA_SUCCESS;
}
TWIN(cuEventDestroy, cuEventDestroy_v2);

/* --- recording ----------------------------------------------------------------------------- */

/* Both under the lock. */
static CUresult record_on(struct stream *stream, struct event *event, unsigned flags)
{
    bool captures = false;
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_captures(stream, &captures));
    const bool is_external = flags == CU_EVENT_RECORD_EXTERNAL;
    if (captures && is_external)
        return capture_external_record(stream, (CUevent)(uintptr_t)event);
    if (captures) {
        position_clear(&event->position);
        event->is_recorded = false;
        return capture_record(stream, &event->captured);
    }
    if (is_external)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->is_legacy)
        TRY(stream_append(stream, &(struct task){0}));
    event_place(event, &stream->tail);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event_handle, CUstream handle, unsigned flags,
                       enum default_stream null_means)
{
    struct stream *stream = NULL;
    struct event *event = NULL;
    REQUIRE(flags <= CU_EVENT_RECORD_EXTERNAL);
    TRY(stream_lock(handle, null_means, &stream));
    CUresult result = event_find(event_handle, &event);
    if (result == CUDA_SUCCESS)
        result = record_on(stream, event, flags);
    order_unlock();
    return result;
}

ENTRY cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    return record(event, stream, flags, DEFAULT_LEGACY);
}

ENTRY cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags)
{
    return record(event, stream, flags, DEFAULT_PER_THREAD);
}

ENTRY cuEventRecord(CUevent event, CUstream stream)
{
    return record(event, stream, CU_EVENT_RECORD_DEFAULT, DEFAULT_LEGACY);
}

ENTRY cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return record(event, stream, CU_EVENT_RECORD_DEFAULT, DEFAULT_PER_THREAD);
}

/* --- waiting ------------------------------------------------------------------------------- */

/* Under the lock: what asking about an event may answer before its state is looked at. */
static CUresult refuse(const struct event *event)
{
    TRY(event_refuse_captured(&event->captured));
    return capture_refuse_unsafe_locked();
}

/* Under the lock: remembers when it was reached while the node still knows. */
static void note_reached(struct event *event)
{
    if (event->reached_ns != 0 || (event->flags & CU_EVENT_DISABLE_TIMING) != 0)
        return;
    /* Before the first work of the process everything is reached: when it is recorded, then. */
    const uint64_t end_ns = event->position.end_ns;
    const uint64_t wall = end_ns == 0 ? 0 : sim_wall(event->position.device, end_ns);
    event->reached_ns = wall > event->recorded_ns ? wall : event->recorded_ns;
}

ENTRY cuEventQuery(CUevent handle)
{
    struct event *event = NULL;
    TRY(event_lock(handle, &event));
    CUresult result = refuse(event);
    if (result == CUDA_SUCCESS && event->shared != NULL) {
        result = shared_event_reached(event->shared) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    } else if (result == CUDA_SUCCESS && event->is_recorded) {
        if (position_reached(&event->position))
            note_reached(event);
        else
            result = CUDA_ERROR_NOT_READY;
    }
    order_unlock();
    return result;
}

ENTRY cuEventSynchronize(CUevent handle)
{
    struct event *event = NULL;
    struct position end = {0};
    TRY(event_lock(handle, &event));
    struct context *context = event->context;
    struct shared_event *shared = event->shared;
    CUresult result = refuse(event);
    if (result == CUDA_SUCCESS && shared != NULL)
        shared_event_hold(shared);
    else if (result == CUDA_SUCCESS)
        position_set(&end, &event->position);
    order_unlock();
    TRY(result);
    TRY(shared == NULL ? position_wait(&end) : shared_event_wait(context, shared));
    pools_settle(context->device);
    return context_check(context);
}

static CUresult wait_event(CUstream handle, CUevent event_handle, unsigned flags,
                           enum default_stream null_means)
{
    struct stream *stream = NULL;
    struct event *event = NULL;
    REQUIRE(flags <= CU_EVENT_WAIT_EXTERNAL);
    TRY(stream_lock(handle, null_means, &stream));
    bool captures = false;
    CUresult result = event_find(event_handle, &event);
    if (result == CUDA_SUCCESS)
        result = stream_captures(stream, &captures);
    if (result == CUDA_SUCCESS && flags == CU_EVENT_WAIT_EXTERNAL)
        result = captures ? capture_external_wait(stream, event_handle) : CUDA_ERROR_ILLEGAL_STATE;
    else if (result == CUDA_SUCCESS && (captures || event->captured.capture != NULL))
        result = capture_wait(stream, &event->captured, event->is_recorded);
    else if (result == CUDA_SUCCESS)
        result = event_await(stream, event);
    order_unlock();
    return result;
}

ENTRY cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    return wait_event(stream, event, flags, DEFAULT_LEGACY);
}

ENTRY cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
    return wait_event(stream, event, flags, DEFAULT_PER_THREAD);
}

/* --- timing -------------------------------------------------------------------------------- */

static bool is_timed(const struct event *event)
{
    return event->is_recorded && (event->flags & CU_EVENT_DISABLE_TIMING) == 0;
}

ENTRY cuEventElapsedTime(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    struct event *start = NULL;
    struct event *end = NULL;
    REQUIRE(milliseconds != NULL);
    TRY(event_lock(start_handle, &start));
    CUresult result = event_find(end_handle, &end);
    if (result == CUDA_SUCCESS &&
        (start->context != end->context || !is_timed(start) || !is_timed(end)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS &&
        (!position_reached(&start->position) || !position_reached(&end->position)))
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS) {
        note_reached(start);
        note_reached(end);
        const int64_t elapsed_ns = (int64_t)(end->reached_ns - start->reached_ns);
        *milliseconds = (float)((double)elapsed_ns / 1e6);
    }
    order_unlock();
    return result;
}
TWIN(cuEventElapsedTime_v2, cuEventElapsedTime);
