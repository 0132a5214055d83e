/*
 * The compute account of one device in this process.
 *
 * A meter holds a balance of GPU time. Launches take their estimated cost from it and wait while it
 * is not above the floor; the ticker fills it by the container's share and puts estimates right.
 * The first line is all that a launch touches when there is budget.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "table.h"

#pragma GCC visibility push(hidden)

/* No stream has this identity: every launch then takes the long way. */
#define NO_STREAM UINTPTR_MAX

/* A floor that no balance is above: the queue of unfinished work is long enough. */
#define FLOOR_CLOSED INT64_MAX

enum {
    METERS = 16,
    METER_STREAMS = 32, /* streams told apart; more share their places */
    METER_DOUBTS = 8,   /* ticks after which others are known who have come */
};

/*
 * What is known of a stream of work: where it ends on the device's clock of this process, in
 * nanoseconds of CLOCK_MONOTONIC less the time for which others had the GPU.
 */
struct tail {
    uintptr_t stream; /* identity; 0: free */
    int64_t end_ns;
    bool blocking; /* ordered with the legacy default stream */
    bool legacy;
    uint32_t used; /* tick in which it was last used */
};

struct meter {
    _Alignas(64) int64_t balance_ns; /* what may still be launched; below zero: debt */
    int64_t floor_ns;
    uintptr_t stream; /* the only stream in use, as the launch names it, or NO_STREAM */
    uint64_t launches;

    /* --- the long way ---------------------------------------------------------------------- */
    _Alignas(64) uint32_t waiters;
    uint32_t gate;         /* a futex; changes when those who wait shall look again */
    uint32_t turns_taken;  /* by threads that wait ... */
    uint32_t turns_over;   /* ... and how many of them have launched */
    bool open;             /* the device has an account; set once */
    bool shared;           /* others, of whatever container, use the device as well */
    bool unbounded;        /* the whole device is guaranteed: any queue will do */
    bool stalled;          /* the queue has not moved for long: it may wait for the next launch */
    bool measure;          /* the next launch shall be measured */
    bool several_streams;  /* charge the union of what overlaps */
    uint32_t unknown;      /* measured launches of unknown cost that are not in yet */
    uint32_t tick;         /* ticks so far */
    int64_t credited_ns;   /* all that was ever added to the balance */
    int64_t lag_ns;        /* how far the device's clock is behind the host's */
    int64_t horizon_ns;    /* where all queued work ends */
    int64_t blocking_ns;   /* where work on blocking streams ends ... */
    int64_t legacy_ns;     /* ... and on the legacy stream */
    uintptr_t last_stream; /* raw handle of the last launch */
    struct tail tails[METER_STREAMS];
    uint64_t throttled_ns;

    /* --- the ticker's ---------------------------------------------------------------------- */
    uint64_t launches_seen;
    uint64_t active_ns; /* when work was last seen on the device */
    uint64_t wanted_ns; /* when somebody last waited for budget */
    int64_t queued_ns;  /* charged behind the oldest launch that is measured and unfinished */
    int64_t
        doubtful_ns[METER_DOUBTS]; /* charged by spans that were longer than expected, by tick */
    uint64_t head_ns; /* mark before the oldest launch that was unfinished at the last tick ... */
    uint64_t head_since_ns; /* ... and since when it is that one */
    int64_t finished_ns;  /* charged up to the oldest launch that was unfinished at the last tick */
    int64_t reported_ns;  /* GPU time used, as others were last told */
    uint64_t occupied_ns; /* since the last report: measured spans, waiting included */
    bool borrows;         /* it had more than its guaranteed share */
    int64_t longest_ns;   /* of the kernels launched lately */
};

extern struct meter meters[METERS];

/* All that was ever charged. */
static inline int64_t meter_charged(const struct meter *meter)
{
    return __atomic_load_n(&meter->credited_ns, __ATOMIC_RELAXED) -
           __atomic_load_n(&meter->balance_ns, __ATOMIC_RELAXED);
}

/* Adds to what may be launched (negative: takes away) without counting as charged. */
static inline void meter_credit(struct meter *meter, int64_t ns)
{
    __atomic_fetch_add(&meter->credited_ns, ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&meter->balance_ns, ns, __ATOMIC_RELAXED);
}

/* --- streams.c ----------------------------------------------------------------------------- */

/* The place of a stream; `identity` tells streams apart, `handle` is asked about its kind. */
struct tail *stream_tail(struct meter *meter, uintptr_t identity, CUstream handle);

/*
 * Queues work on a stream and answers by how much the whole device's work grows: nothing for what
 * runs beside something longer.
 */
int64_t stream_queue(struct meter *meter, struct tail *tail, int64_t cost_ns, int64_t now_ns);

/* Where the work ends that a mark at the end of the stream stands for. */
int64_t stream_end(struct meter *meter, uintptr_t identity, CUstream handle);

/* The stream does nothing more before then. */
void stream_wait(struct meter *meter, uintptr_t identity, CUstream handle, int64_t end_ns);

/* A measurement says that queued work is longer (or shorter); answers the growth. */
int64_t stream_correct(struct meter *meter, struct tail *tail, int64_t by_ns, int64_t now_ns);

/* Lets a second stream in: from now on ends are kept per stream. */
void streams_part(struct meter *meter, int64_t now_ns, int64_t queued_ns);

/* How many streams were used since a tick. */
unsigned streams_used(const struct meter *meter, uint32_t since);

#pragma GCC visibility pop
