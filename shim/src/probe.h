/*
 * Measured launches: pairs of events around a launch, taken by the launching thread, read by the
 * ticker.
 *
 * Events belong to a context, so every context has a pool of its own. A probe is taken and given
 * back by one atomic word each; a launch that finds none free is simply not measured.
 */
#pragma once

#include "cost.h"
#include "meter.h"

#pragma GCC visibility push(hidden)

enum {
    PROBE_POOLS = 16,
    PROBES = 64,          /* per pool: as many bits as the word that says which are free */
    PROBE_LATE_NS = 5000, /* more than setting a mark or launching a kernel takes */
};

struct probe_pool;

struct probe {
    CUevent start;
    CUevent end;
    struct probe_pool *pool;
    struct meter *meter;
    struct cost *cost;
    uint64_t key; /* of `cost` when the launch was made */
    struct cost_window window;
    struct tail *tail;    /* of its stream; NULL: the only one */
    int64_t end_ns;       /* where its stream ends with it, on the device's clock */
    int64_t charged_ns;   /* the meter's account with it */
    uint64_t marked_ns;   /* when its beginning was marked, CLOCK_MONOTONIC ... */
    uint64_t launched_ns; /* ... and when the driver was called */
    int64_t idle_ns;      /* between these two, on a stream that had nothing to do */
    int64_t call_ns;      /* for how long the driver was called, on such a stream */
    bool waited;          /* the stream had nothing to do */
    bool late;            /* we were late with one of the marks or the launch between them */
    bool was_unknown;
    bool per_thread; /* a null stream means the thread's own */
    CUstream stream;
};

/*
 * Takes a probe in the current context (or the stream's) and marks the beginning; NULL: none
 * free, or the stream cannot be marked now.
 */
struct probe *probe_begin(struct meter *meter, CUstream stream, bool per_thread);

/* The driver is called now. */
void probe_launching(struct probe *probe);

/* Marks the end. Says whether the probe is under way; if not, it is free again. */
bool probe_end(struct probe *probe);

/* Gives a probe back whose launch failed. */
void probe_drop(struct probe *probe);

/*
 * Calls `take` for every probe under way of which the end has been reached, with the measured span,
 * and `wait` for every other one; from the ticker's thread.
 */
void probes_read(void (*take)(struct probe *probe, int64_t span_ns),
                 void (*wait)(struct probe *probe));

/*
 * Contexts end between these two: the ticker must not ask about events that go with one. What has
 * ended is said in between, by its handle or, for primary contexts, by its device.
 */
void probes_hold(void);
void probes_release(void);
void probes_forget(CUcontext context);
void probes_forget_device(int device);

/* The process ends: the driver is asked nothing more. Waits for what is being asked now. */
void probes_stop(void);

/* In a forked child no event is ours. */
void probes_reset(void);

#pragma GCC visibility pop
