/*
 * Admitting launches: charged at once when there is budget, held until there is when not.
 */
#pragma once

#include "cost.h"
#include "meter.h"
#include "probe.h"

#pragma GCC visibility push(hidden)

/* A launch as the account sees it. */
struct launch {
    uint64_t key;    /* what is launched, and how large */
    CUstream stream; /* as the program named it ... */
    bool per_thread; /* ... and whether null means the thread's own */
};

/*
 * False: nothing is metered in this process, for lack of compute limits. Starts as true, and is
 * decided at the first launch.
 */
extern bool throttle_on;

/* Streams that are capturing now, or may be: launches into those are not executed. */
extern uint32_t throttle_captures;

/*
 * The short way: charges a launch and says so. False: nothing was charged, take the long way.
 * `stream` is the raw handle; only the caller knows that it is not a thread's own stream.
 */
static inline bool throttle_charge(uint64_t key, uintptr_t stream)
{
    /* A stale value costs one slightly wrong charge, which the next measurement puts right. */
    struct cost *cost = cost_entry(key);
    if (__builtin_expect(__atomic_load_n(&cost->key, __ATOMIC_ACQUIRE) != key, 0))
        return false;
    struct meter *meter = cost_get(cost->meter);
    if (__builtin_expect(cost_get(meter->stream) != stream, 0) ||
        __builtin_expect(cost_get(cost->countdown) <= 0, 0))
        return false;
    int64_t ns = cost_get(cost->estimate_ns);
    if (__builtin_expect(__atomic_sub_fetch(&meter->balance_ns, ns, __ATOMIC_RELAXED) < 0, 0)) {
        __atomic_fetch_add(&meter->balance_ns, ns, __ATOMIC_RELAXED);
        return false;
    }
    cost_set(cost->countdown, cost_get(cost->countdown) - 1);
    __atomic_fetch_add(&meter->launches, 1, __ATOMIC_RELAXED);
    return true;
}

/*
 * The long way: waits for budget, charges, and begins to measure when it is time to. The answer,
 * NULL or not, goes to throttle_launched once the driver has been called.
 */
struct probe *throttle_admit(const struct launch *launch);
void throttle_launched(struct probe *probe, CUresult result);

/* What tells the launch's stream from others: a thread's own default stream by the thread. */
uintptr_t throttle_stream(const struct launch *launch);

/* The same for a whole graph. */
struct probe *throttle_graph(CUgraphExec graph, CUstream stream, bool per_thread);

#pragma GCC visibility pop
