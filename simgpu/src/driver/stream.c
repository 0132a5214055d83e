/*
 * Streams and the order between them.
 */
#include "stream_set.h"

#include <string.h>

static struct table streams = TABLE(struct stream, 1 << 16);
static uint64_t last_id;

/* The calling thread's own default stream in the context where it was last asked for. Its address
 * names the thread: whoever comes after a thread that has ended takes over its streams. */
static THREAD_LOCAL struct {
    struct stream *stream;
    uint64_t stamp;
} per_thread;

/* --- handles ------------------------------------------------------------------------------- */

CUresult stream_make(struct context *context, unsigned flags, int priority, struct stream **stream)
{
    struct stream *fresh = table_take(&streams);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->context = context;
    fresh->id = ++last_id;
    fresh->flags = flags;
    fresh->priority = priority < STREAM_PRIORITY_GREATEST ? STREAM_PRIORITY_GREATEST
                      : priority > STREAM_PRIORITY_LEAST  ? STREAM_PRIORITY_LEAST
                                                          : priority;
    fresh->is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    position_set(&fresh->tail, &context->streams->floor);
    fresh->attributes.sync_policy = CU_SYNC_POLICY_AUTO;
    fresh->next = context->streams->first;
    context->streams->first = fresh;
    *stream = fresh;
    return CUDA_SUCCESS;
}

void stream_end(struct stream *stream)
{
    struct stream **link = &stream->context->streams->first;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    position_clear(&stream->tail);
    table_give(&streams, stream);
}

void stream_table_forget(void)
{
    table_forget(&streams);
}

static CUresult own_stream(struct context *context, struct stream **stream)
{
    if (LIKELY(per_thread.stamp == context->stamp)) {
        *stream = per_thread.stream;
        return CUDA_SUCCESS;
    }
    struct stream *found = context->streams->first;
    while (found != NULL && found->thread != &per_thread)
        found = found->next;
    if (found == NULL) {
        TRY(stream_make(context, CU_STREAM_DEFAULT, STREAM_PRIORITY_LEAST, &found));
        found->thread = &per_thread;
        found->is_default = true;
    }
    per_thread.stream = found;
    per_thread.stamp = context->stamp;
    *stream = found;
    return CUDA_SUCCESS;
}

bool stream_lives(const struct stream *stream)
{
    return table_holds(&streams, stream);
}

CUresult stream_lock(CUstream handle, enum default_stream null_means, struct stream **stream)
{
    if (handle == NULL)
        handle = null_means == DEFAULT_LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        ENTER(context);
        order_lock();
        *stream = context->streams->legacy;
        const CUresult result =
            handle == CU_STREAM_LEGACY ? CUDA_SUCCESS : own_stream(context, stream);
        if (result != CUDA_SUCCESS)
            order_unlock();
        return result;
    }
    TRY(driver_check());
    struct stream *named = (struct stream *)(uintptr_t)handle;
    order_lock();
    CUresult result = table_holds(&streams, named) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (LIKELY(result == CUDA_SUCCESS))
        result = context_check(named->context);
    if (UNLIKELY(result != CUDA_SUCCESS))
        order_unlock();
    *stream = named;
    return result;
}

CUresult stream_context(CUstream handle, enum default_stream null_means, struct context **context)
{
    struct stream *stream = NULL;
    TRY(stream_lock(handle, null_means, &stream));
    *context = stream->context;
    order_unlock();
    return CUDA_SUCCESS;
}

/* --- order --------------------------------------------------------------------------------- */

void stream_set_note(struct stream_set *set, uint64_t end_ns, bool blocking)
{
    if (end_ns > set->all_end_ns)
        set->all_end_ns = end_ns;
    if (blocking && end_ns > set->blocking_end_ns)
        set->blocking_end_ns = end_ns;
}

bool stream_is_settled(struct stream *stream)
{
    if (!position_settle(&stream->tail))
        return false;
    if (stream->is_blocking)
        return position_settle(&stream->context->streams->legacy->tail);
    if (!stream->is_legacy || order_first == NULL)
        return true;
    for (struct stream *other = stream->context->streams->first; other != NULL; other = other->next)
        if (other->is_blocking && !position_settle(&other->tail))
            return false;
    return true;
}

/* The legacy stream behind every blocking stream of which the end is not known yet. */
static CUresult await_unresolved(struct stream *legacy)
{
    const struct task nothing = {0};
    for (struct stream *other = legacy->context->streams->first; other != NULL;
         other = other->next) {
        if (!other->is_blocking || position_settle(&other->tail))
            continue;
        struct position *before[] = {&legacy->tail, &other->tail};
        TRY(order_task(legacy->context, before, 2, &nothing, &legacy->tail));
    }
    return CUDA_SUCCESS;
}

/* A task behind the stream's end, one more position, and what default streams imply. */
static CUresult place(struct stream *stream, const struct task *task, struct position *also)
{
    struct stream_set *set = stream->context->streams;
    struct position blocking = {.end_ns = set->blocking_end_ns, .device = stream->tail.device};
    struct position *before[3] = {&stream->tail};
    size_t count = 1;
    if (stream->is_blocking) {
        before[count++] = &set->legacy->tail;
    } else if (stream->is_legacy) {
        before[count++] = &blocking;
        if (UNLIKELY(order_first != NULL))
            TRY(await_unresolved(stream));
    }
    if (also != NULL)
        before[count++] = also;
    struct task placed = *task;
    placed.blocking = stream->is_blocking;
    return order_task(stream->context, before, count, &placed, &stream->tail);
}

CUresult stream_append(struct stream *stream, const struct task *task)
{
    return place(stream, task, NULL);
}

CUresult stream_await(struct stream *stream, struct position *position)
{
    const struct task nothing = {0};
    return place(stream, &nothing, position);
}

/* --- operations ---------------------------------------------------------------------------- */

/* Under the lock, which is given up while the operation's own function runs. */
static CUresult enqueue(struct stream *stream, const struct operation *operation)
{
    struct task task = {
        .duration_ns = driver.null_mode ? 0 : operation->duration_ns,
        .run = operation->run,
        .arguments = operation->arguments,
        .argument_bytes = sizeof operation->arguments,
    };
    if (task.run != NULL && stream_is_settled(stream)) {
        struct context *context = stream->context;
        uint8_t arguments[OPERATION_ARGUMENT_BYTES];
        memcpy(arguments, operation->arguments, sizeof arguments);
        order_unlock();
        task.run(context, arguments);
        order_lock();
        task.run = NULL;
        if (!stream_lives(stream))
            return CUDA_SUCCESS;
    }
    return stream_append(stream, &task);
}

CUresult stream_submit(CUstream handle, enum default_stream null_means,
                       const struct operation *operation)
{
    struct stream *stream = NULL;
    bool captures = false;
    TRY(stream_lock(handle, null_means, &stream));
    CUresult result = stream_captures(stream, &captures);
    if (result == CUDA_SUCCESS)
        result = captures ? capture_operation(stream, operation) : enqueue(stream, operation);
    order_unlock();
    return result;
}

CUresult stream_run(enum default_stream which, const struct operation *operation)
{
    struct stream *stream = NULL;
    struct position end = {0};
    TRY(stream_lock(NULL, which, &stream));
    CUresult result = stream_refuse_waiting(stream);
    if (result == CUDA_SUCCESS)
        result = capture_refuse_unsafe_locked();
    if (result == CUDA_SUCCESS)
        result = enqueue(stream, operation);
    if (result == CUDA_SUCCESS && stream_lives(stream))
        position_set(&end, &stream->tail);
    order_unlock();
    return result == CUDA_SUCCESS ? position_wait(&end) : result;
}

CUresult streams_wait(struct context *context)
{
    order_wait(context);
    order_lock();
    struct position end = {.device = context->device->index};
    if (context->streams != NULL)
        end.end_ns = context->streams->all_end_ns;
    order_unlock();
    return position_wait(&end);
}
