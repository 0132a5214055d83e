/*
 * What happens after what inside this process: positions, and the work that waits for its turn.
 *
 * A position whose end is known is resolved: its end lies on the active axis of its device, and
 * nothing is kept for it. What the timeline cannot foresee (host functions, waits for memory
 * values, events of other devices) is a piece of work that a thread of the driver does when it can
 * be done; positions behind it stay unresolved until then and hold a reference to their work.
 *
 * One lock guards streams, events, captures, graphs and work. It is held for short, never while a
 * function of the program or of the memory half runs, and never while waiting for the GPU.
 */
#pragma once

#include <pthread.h>

#include "stream.h"

struct work;

struct position {
    uint64_t end_ns;   /* at least this, on the device's active axis */
    struct work *work; /* not NULL: unresolved, ends when this does */
    unsigned device;   /* index in the node */
};

/* Something that takes its place in an order. */
struct task {
    uint64_t duration_ns;                 /* how long the GPU is busy with it */
    bool after_all;                       /* starts only when everything before it is over */
    bool on_host;                         /* a function of the program, which may take its time */
    bool blocking;                        /* on a stream that the legacy stream waits for */
    bool (*ready)(const void *arguments); /* asked until it says yes; may be NULL */
    void (*run)(struct context *context, void *arguments); /* may be NULL */
    const void *arguments;                                 /* copied when it has to wait */
    size_t argument_bytes;
};

/* A deferred task and where it stands. */
struct work {
    struct work *next; /* in order of creation */
    uint64_t serial;
    unsigned references;
    bool running;
    bool resolved;
    struct context *context; /* NULL: cancelled */
    unsigned device;
    uint64_t end_ns; /* once resolved */
    struct task task;
    void *arguments;
    size_t before_count;
    struct position before[];
};

extern pthread_mutex_t order_mutex;

static inline void order_lock(void)
{
    pthread_mutex_lock(&order_mutex);
}

static inline void order_unlock(void)
{
    pthread_mutex_unlock(&order_mutex);
}

/* --- under the lock ------------------------------------------------------------------------ */

/* Learns whether the work that the position waited for is done; true when it is resolved. */
bool position_settle(struct position *position);

/* Makes *to the same place as *from; drops where it was before. */
void position_set(struct position *to, const struct position *from);

/* Drops what the position holds; it is at the beginning of time then. */
void position_clear(struct position *position);

/* Whether everything up to the position has happened. */
bool position_reached(struct position *position);

/*
 * Puts a task behind all of `before` and says in *end where it ends (which may be one of `before`).
 * What can be submitted at once is; everything else waits as work. `end` is of the context's
 * device.
 */
CUresult order_task(struct context *context, struct position *const before[], size_t count,
                    const struct task *task, struct position *end);

/* --- not under the lock -------------------------------------------------------------------- */

/* Waits until a position that the caller holds has been reached, and drops it. */
CUresult position_wait(struct position *position);

/* Waits until all work of the context that waits now has been done. */
void order_wait(struct context *context);

/* Drops the context's waiting work, and waits for what is just running. */
void order_cancel(struct context *context);

/* In a forked child: the work, the threads and the lock were the parent's. */
void order_forget(void);

/* --- for the threads that do the work (runner.c) ------------------------------------------- */

enum { RUNNER_GPU, RUNNER_HOST, RUNNER_KINDS };

/* Makes sure that a thread for this kind of work runs, and that it looks at the list. */
CUresult runner_wake(bool on_host);
void runner_forget(void);

extern struct work *order_first;
extern pthread_cond_t order_added;

/* Marks work as done; `end_ns` counts unless it was cancelled. */
void order_resolve(struct work *work, uint64_t end_ns);
