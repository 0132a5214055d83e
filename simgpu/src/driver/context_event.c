/*
 * Events over whole contexts: everything queued in one, and everything that comes after.
 */
#include "event_set.h"

/* Both by handle, and the lock. */
static CUresult lock_both(CUcontext handle, CUevent event_handle, struct context **context,
                          struct event **event)
{
    TRY(context_get(handle, context));
    TRY(capture_refuse_waiting(*context));
    return event_lock(event_handle, event);
}

ENTRY cuCtxRecordEvent(CUcontext handle, CUevent event_handle)
{
    struct context *context = NULL;
    struct event *event = NULL;
    const struct task nothing = {0};
    TRY(lock_both(handle, event_handle, &context, &event));
    struct position all = {.end_ns = context->streams->all_end_ns,
                           .device = context->device->index};
    CUresult result = event->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    for (struct stream *stream = context->streams->first; result == CUDA_SUCCESS && stream != NULL;
         stream = stream->next) {
        struct position *before[] = {&all, &stream->tail};
        result = order_task(context, before, 2, &nothing, &all);
    }
    if (result == CUDA_SUCCESS)
        event_place(event, &all);
    position_clear(&all);
    order_unlock();
    return result;
}

ENTRY cuCtxWaitEvent(CUcontext handle, CUevent event_handle)
{
    struct context *context = NULL;
    struct event *event = NULL;
    const struct task nothing = {0};
    TRY(lock_both(handle, event_handle, &context, &event));
    CUresult result = event_refuse_captured(&event->captured);
    struct stream *stream = event->is_recorded ? context->streams->first : NULL;
    for (; result == CUDA_SUCCESS && stream != NULL; stream = stream->next)
        result = event_await(stream, event);
    if (result == CUDA_SUCCESS && event->is_recorded) {
        struct position *before[] = {&context->streams->floor, &event->position};
        result = order_task(context, before, 2, &nothing, &context->streams->floor);
    }
    order_unlock();
    return result;
}

ENTRY cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    return cuCtxRecordEvent((CUcontext)(uintptr_t)green, event);
}

ENTRY cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    return cuCtxWaitEvent((CUcontext)(uintptr_t)green, event);
}
