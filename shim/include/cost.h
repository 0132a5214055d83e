/*
 * What a launch costs: estimates of GPU time per kernel and size, learnt from measured launches.
 *
 * A launch is charged its estimate at once. Some launches are measured; each measured one speaks
 * for those since the one before it, and the difference between what was charged for them and what
 * they took is put right when the measurement is in. So estimates only shape the short term: the
 * long-run account is what was measured.
 *
 * Pure computation: no driver, no clock. Fields that the launch path reads without a lock are
 * written as single words; a race costs one slightly wrong charge, which the next measurement
 * puts right.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum {
    COST_ENTRIES_SHIFT = 52,
    COST_ENTRIES = 1 << (64 - COST_ENTRIES_SHIFT),
    COST_SPANS = 16,               /* measured spans remembered per entry */
    COST_WAITS = 64,               /* so many spans that contain waiting have a lowest one */
    COST_UNKNOWN_NS = 50000,       /* charged for what was never measured */
    COST_MEASURE_NS = 1000000,     /* at least one launch in so much GPU time is measured */
    COST_INTERVAL_MAX = 64,        /* ... and one launch in so many */
    COST_CHEAP_NS = 200000,        /* below this, two measurements under way are enough */
    COST_STEADY_SAMPLES = 8,       /* before measuring becomes rare */
    COST_YOUNG_SAMPLES = 16,       /* so long all launches among others are priced anew together */
    COST_SLICED_NS = 4000000,      /* what takes longer is interrupted by who else uses the GPU */
    COST_SPAN_NS_MAX = 2000000000, /* longer spans are believed no more than this */
    COST_ERRATIC = 4,              /* so many times longer than others is erratic */
    COST_ERRATIC_NS = 24000000,    /* erratic launches under way could take so long together */
};

/* The largest span is remembered for at least so long. */
#define COST_PEAK_NS UINT64_C(8000000000)

/* How far a measured span can be believed. */
enum span_quality {
    SPAN_ALONE,     /* nobody else used the GPU: the span is the cost */
    SPAN_CONTENDED, /* may contain time slices of others, but began inside one of ours */
    SPAN_WAITED,    /* an upper bound: contains waiting for a time slice, or for ourselves */
    SPAN_SLICED,    /* an upper bound that contains slices of other containers in any case */
};

struct __attribute__((aligned(128))) cost {
    uint64_t key; /* 0: empty */
    void *meter;  /* of the device that it runs on; the launch path wants it here */
    int64_t estimate_ns;
    int32_t countdown; /* launches until one is measured; below 0: now */
    int32_t interval;  /* what the countdown began with */
    /* What was charged since the last measured launch before the estimate last changed. */
    int64_t open_ns;
    int32_t open_launches;
    uint32_t samples;   /* measured so far */
    uint32_t waited;    /* spans in a row that contain waiting for a time slice ... */
    uint32_t lowest[2]; /* ... and the lowest among the last of these, and of those before */
    uint32_t under_way; /* measurements that are not in yet */
    uint32_t deferred;  /* measurements put off in a row, for a launch that does not wait */
    int64_t peak_ns;    /* largest span lately: what can become expensive is watched closely */
    int64_t older_peak_ns;
    uint64_t peak_since_ns;
    int64_t last_ns;
    /* What was charged among others before the estimate was any good, and for how many launches. */
    int64_t young_ns;
    int32_t young_launches;
    uint32_t erratic_ns; /* the longest span lately, when others were far shorter; else 0 */
    uint32_t spans[COST_SPANS];
};

/* The launches that one measurement speaks for. */
struct cost_window {
    int64_t charged_ns;
    int32_t launches; /* the measured one included */
};

extern struct cost cost_entries[COST_ENTRIES];

/* What other threads may be changing, and where any order will do. */
#define cost_get(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define cost_set(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELAXED)

/*
 * The place of a key in the table. Two keys that meet take turns: the loser is learnt anew, which
 * costs measurements, never accuracy.
 */
static inline struct cost *cost_entry(uint64_t key)
{
    return &cost_entries[key * UINT64_C(0x9e3779b97f4a7c15) >> COST_ENTRIES_SHIFT];
}

/* Begins to learn a new key. */
void cost_reset(struct cost *cost, uint64_t key, void *meter);

/* Whether the estimate rests on a measurement. */
static inline bool cost_known(const struct cost *cost)
{
    return cost_get(cost->samples) != 0;
}

/*
 * Whether what is under way may take far longer than it was charged: no estimate is good for a
 * kernel that takes 20 us or 200 ms at random, and a queue of those could be seconds long.
 */
static inline bool cost_is_risky(const struct cost *cost)
{
    uint64_t longest_ns = cost_get(cost->erratic_ns);
    return longest_ns * cost_get(cost->under_way) > COST_ERRATIC_NS;
}

/* One measurement fewer is under way. */
static inline void cost_arrived(struct cost *cost)
{
    /* An entry that was learnt anew meanwhile has forgotten it. */
    uint32_t before = cost_get(cost->under_way);
    while (before != 0 && !__atomic_compare_exchange_n(&cost->under_way, &before, before - 1, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/*
 * Whether a cheap launch that is due need not be measured, because others just like it are under
 * way; the next ones then take the short way for a while.
 */
bool cost_postpone(struct cost *cost);

/* Closes the window at a launch that is being measured and has been charged the estimate. */
struct cost_window cost_close(struct cost *cost);

/*
 * Takes in a measured span; answers what is to be charged in addition for the window (negative: to
 * be given back).
 */
int64_t cost_learn(struct cost *cost, const struct cost_window *window, int64_t span_ns,
                   enum span_quality quality, uint64_t now_ns);

#pragma GCC visibility pop
