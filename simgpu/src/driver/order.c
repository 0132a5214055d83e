/*
 * Positions and waiting work.
 */
#include "order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stream_set.h"

pthread_mutex_t order_mutex = PTHREAD_MUTEX_INITIALIZER;
struct work *order_first;
pthread_cond_t order_added = PTHREAD_COND_INITIALIZER;

static struct work *last;
static uint64_t last_serial;
static pthread_cond_t resolved = PTHREAD_COND_INITIALIZER;

/* --- positions ----------------------------------------------------------------------------- */

static void release(struct work *work)
{
    if (--work->references == 0)
        free(work);
}

bool position_settle(struct position *position)
{
    struct work *work = position->work;
    if (LIKELY(work == NULL))
        return true;
    if (!work->resolved)
        return false;
    if (work->end_ns > position->end_ns)
        position->end_ns = work->end_ns;
    position->work = NULL;
    release(work);
    return true;
}

void position_clear(struct position *position)
{
    struct work *work = position->work;
    *position = (struct position){.device = position->device};
    if (work != NULL)
        release(work);
}

void position_set(struct position *to, const struct position *from)
{
    const struct position copy = *from;
    if (copy.work != NULL)
        copy.work->references++;
    position_clear(to);
    *to = copy;
}

bool position_reached(struct position *position)
{
    return position_settle(position) && sim_reached(position->device, position->end_ns);
}

CUresult position_wait(struct position *position)
{
    order_lock();
    while (!position_settle(position))
        pthread_cond_wait(&resolved, &order_mutex);
    order_unlock();
    switch (sim_wait(position->device, position->end_ns)) {
    case 0:
        return CUDA_SUCCESS;
    case -ECANCELED:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case -EIO:
        return DEVICE_IS_LOST;
    default:
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
}

/* --- tasks --------------------------------------------------------------------------------- */

/* The latest end on the device, if everything is resolved and what is elsewhere has happened. */
static bool all_resolved(unsigned device, struct position *const before[], size_t count,
                         uint64_t *not_before)
{
    *not_before = 0;
    for (size_t i = 0; i < count; i++) {
        if (!position_settle(before[i]))
            return false;
        if (before[i]->device != device) {
            if (!sim_reached(before[i]->device, before[i]->end_ns))
                return false;
        } else if (before[i]->end_ns > *not_before) {
            *not_before = before[i]->end_ns;
        }
    }
    return true;
}

static CUresult defer(struct context *context, struct position *const before[], size_t count,
                      const struct task *task, struct position *end)
{
    TRY(runner_wake(task->on_host));
    struct work *work = calloc(1, sizeof *work + count * sizeof work->before[0]);
    void *arguments = task->argument_bytes > 0 ? malloc(task->argument_bytes) : NULL;
    if (work == NULL || (task->argument_bytes > 0 && arguments == NULL)) {
        free(work);
        free(arguments);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (arguments != NULL)
        memcpy(arguments, task->arguments, task->argument_bytes);
    work->serial = ++last_serial;
    work->references = 2; /* the list's and the caller's */
    work->context = context;
    work->device = context->device->index;
    work->task = *task;
    work->arguments = arguments;
    work->before_count = count;
    for (size_t i = 0; i < count; i++)
        position_set(&work->before[i], before[i]);
    if (last != NULL)
        last->next = work;
    else
        order_first = work;
    last = work;
    position_clear(end);
    *end = (struct position){.work = work, .device = work->device};
    pthread_cond_broadcast(&order_added);
    return CUDA_SUCCESS;
}

CUresult order_task(struct context *context, struct position *const before[], size_t count,
                    const struct task *task, struct position *end)
{
    const unsigned device = context->device->index;
    uint64_t not_before = 0;
    if (UNLIKELY(task->run != NULL || task->ready != NULL ||
                 !all_resolved(device, before, count, &not_before) ||
                 (task->after_all && !sim_reached(device, not_before))))
        return defer(context, before, count, task, end);
    if (task->duration_ns > 0)
        not_before = sim_submit(device, not_before, task->duration_ns);
    position_clear(end);
    *end = (struct position){.end_ns = not_before, .device = device};
    stream_set_note(context->streams, not_before, task->blocking);
    return CUDA_SUCCESS;
}

/* --- waiting work -------------------------------------------------------------------------- */

static void unlink_work(struct work *work)
{
    struct work *previous = NULL;
    for (struct work *at = order_first; at != work; at = at->next)
        previous = at;
    if (previous != NULL)
        previous->next = work->next;
    else
        order_first = work->next;
    if (last == work)
        last = previous;
}

void order_resolve(struct work *work, uint64_t end_ns)
{
    unlink_work(work);
    /* At once, not when it is released: a long chain of work must not end in a deep recursion. */
    for (size_t i = 0; i < work->before_count; i++)
        position_clear(&work->before[i]);
    free(work->arguments);
    work->arguments = NULL;
    if (work->context != NULL) {
        work->end_ns = end_ns;
        stream_set_note(work->context->streams, end_ns, work->task.blocking);
    }
    work->running = false;
    work->resolved = true;
    pthread_cond_broadcast(&resolved);
    pthread_cond_broadcast(&order_added); /* what waited for this one can go on */
    release(work);
}

void order_wait(struct context *context)
{
    order_lock();
    const uint64_t newest = last_serial;
    struct work *work = order_first;
    while (work != NULL && work->serial <= newest) {
        if (work->context != context) {
            work = work->next;
            continue;
        }
        pthread_cond_wait(&resolved, &order_mutex);
        work = order_first;
    }
    order_unlock();
}

void order_cancel(struct context *context)
{
    order_lock();
    struct work *work = order_first;
    while (work != NULL) {
        struct work *next = work->next;
        if (work->context == context && !work->running) {
            work->context = NULL;
            order_resolve(work, 0);
        } else if (work->context == context) {
            pthread_cond_wait(&resolved, &order_mutex);
            next = order_first;
        }
        work = next;
    }
    order_unlock();
}

void order_forget(void)
{
    pthread_mutex_init(&order_mutex, NULL);
    pthread_cond_init(&resolved, NULL);
    order_first = NULL;
    last = NULL;
    runner_forget();
}
