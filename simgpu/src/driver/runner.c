/*
 * The threads that do waiting work: one for the GPU's side, one for functions of the program.
 *
 * A host function may take any time, so it has a thread of its own and does not hold up streams
 * that have nothing to do with it. Host functions run one after the other, as documented.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "order.h"

/* How soon to look again at a memory value, and at the GPU when others may share it. */
#define VALUE_POLL_NS 100000
#define GPU_POLL_NS 2000000

static bool started[RUNNER_KINDS];

/* What a function of the program finds as its context: it may not call the driver. */
static const uint32_t no_trouble = 0;
static struct device nowhere = {.lost = &no_trouble, .armed = &no_trouble};
static struct context forbidden = {.sticky = CUDA_ERROR_NOT_PERMITTED, .device = &nowhere};

/* When the work may be possible: 0 for now, else nanoseconds to wait; UINT64_MAX: after others. */
static uint64_t delay_of(struct work *work, uint64_t *not_before)
{
    *not_before = 0;
    for (size_t i = 0; i < work->before_count; i++) {
        struct position *before = &work->before[i];
        if (!position_settle(before))
            return UINT64_MAX;
        const bool elsewhere = before->device != work->device;
        if (!elsewhere && before->end_ns > *not_before)
            *not_before = before->end_ns;
        if (!elsewhere && !work->task.after_all)
            continue;
        const uint64_t active = sim_active(before->device);
        if (active < before->end_ns)
            return before->end_ns - active < GPU_POLL_NS ? before->end_ns - active : GPU_POLL_NS;
    }
    if (work->task.ready != NULL && !work->task.ready(work->arguments))
        return VALUE_POLL_NS;
    return 0;
}

static void finish(struct work *work, uint64_t not_before)
{
    work->running = true;
    if (work->task.run != NULL) {
        struct context *context = work->context;
        order_unlock();
        work->task.run(context, work->arguments);
        order_lock();
    }
    uint64_t end = not_before;
    if (work->task.duration_ns > 0) {
        end = sim_submit(work->device, not_before, work->task.duration_ns);
    } else if (work->task.after_all) {
        /* What comes next starts after this moment, not when the work before it was over. */
        const uint64_t now = sim_active(work->device);
        end = now > end ? now : end;
    }
    order_resolve(work, end);
}

/* Does one piece of work, or says how long to wait; UINT64_MAX when there is nothing to wait for.
 */
static uint64_t run_one(bool on_host)
{
    uint64_t soonest = UINT64_MAX;
    for (struct work *work = order_first; work != NULL; work = work->next) {
        if (work->task.on_host != on_host || work->running)
            continue;
        uint64_t not_before = 0;
        const uint64_t delay = delay_of(work, &not_before);
        if (delay == 0) {
            finish(work, not_before);
            return 0;
        }
        soonest = delay < soonest ? delay : soonest;
    }
    return soonest;
}

static void wait_for(uint64_t delay_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t nanoseconds = (uint64_t)until.tv_nsec + delay_ns;
    until.tv_sec += (time_t)(nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    pthread_cond_timedwait(&order_added, &order_mutex, &until);
}

static void *run(void *argument)
{
    const bool on_host = argument != NULL;
    thread.current = &forbidden;
    order_lock();
    for (;;) {
        const uint64_t delay = run_one(on_host);
        if (delay == UINT64_MAX)
            pthread_cond_wait(&order_added, &order_mutex);
        else if (delay > 0)
            wait_for(delay);
    }
    return NULL;
}

/* With a clock that nobody sets; before the first thread waits. */
static void make_condition(void)
{
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&order_added, &steady);
    pthread_condattr_destroy(&steady);
}

/* The threads never end, so the library must stay even if the program closes it. */
static void stay_loaded(void)
{
    Dl_info here;
    if (dladdr(&started, &here) != 0)
        dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

CUresult runner_wake(bool on_host)
{
    static bool on_host_marker = true;
    const int kind = on_host ? RUNNER_HOST : RUNNER_GPU;
    if (started[kind])
        return CUDA_SUCCESS;
    if (!started[RUNNER_GPU] && !started[RUNNER_HOST]) {
        make_condition();
        stay_loaded();
    }
    /* Signals are the program's business. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread_id;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    const int failed = pthread_create(&thread_id, &detached, run, on_host ? &on_host_marker : NULL);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    started[kind] = failed == 0;
    return failed == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

void runner_forget(void)
{
    started[RUNNER_GPU] = false;
    started[RUNNER_HOST] = false;
}
