/*
 * Work that overlaps on several streams of a process is one stretch of GPU time, not two.
 *
 * Each stream has a virtual end. A launch grows its stream's end; what it grows the latest end of
 * all streams by is what it costs the container. Words are changed by compare-and-swap, so threads
 * that launch at once need no lock.
 */
#include "meter.h"

static int64_t load(const int64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static bool is_set(const bool *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void raise_to(int64_t *word, int64_t value)
{
    int64_t seen = load(word);
    while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
}

static bool is_blocking(CUstream handle)
{
    unsigned flags = 0;
    /* A handle that cannot be asked is a default stream of a thread, which is a blocking one. */
    return real.cuStreamGetFlags(handle, &flags) != CUDA_SUCCESS ||
           (flags & CU_STREAM_NON_BLOCKING) == 0;
}

struct tail *stream_tail(struct meter *meter, uintptr_t identity, CUstream handle)
{
    uint32_t tick = __atomic_load_n(&meter->tick, __ATOMIC_RELAXED);
    unsigned home = (unsigned)(identity * UINT64_C(0x9e3779b97f4a7c15) >> 59) % METER_STREAMS;
    struct tail *stalest = &meter->tails[home];
    for (unsigned step = 0; step < 4; step++) {
        struct tail *tail = &meter->tails[(home + step) % METER_STREAMS];
        if (__atomic_load_n(&tail->stream, __ATOMIC_ACQUIRE) == identity) {
            __atomic_store_n(&tail->used, tick, __ATOMIC_RELAXED);
            return tail;
        }
        uint32_t unused = tick - __atomic_load_n(&tail->used, __ATOMIC_RELAXED);
        uint32_t most = tick - __atomic_load_n(&stalest->used, __ATOMIC_RELAXED);
        if (unused > most || __atomic_load_n(&tail->stream, __ATOMIC_RELAXED) == 0)
            stalest = tail;
    }
    bool legacy = handle == NULL || handle == CU_STREAM_LEGACY;
    __atomic_store_n(&stalest->legacy, legacy, __ATOMIC_RELAXED);
    __atomic_store_n(&stalest->blocking, !legacy && is_blocking(handle), __ATOMIC_RELAXED);
    __atomic_store_n(&stalest->used, tick, __ATOMIC_RELAXED);
    __atomic_store_n(&stalest->stream, identity, __ATOMIC_RELEASE);
    return stalest;
}

/* Where a stream's next work can start, other streams considered. */
static int64_t earliest(const struct meter *meter, const struct tail *tail, int64_t now_ns)
{
    if (is_set(&tail->legacy))
        return later(now_ns, load(&meter->blocking_ns));
    return is_set(&tail->blocking) ? later(now_ns, load(&meter->legacy_ns)) : now_ns;
}

/* Raises the horizon to `end`; answers what lies between the two, not counting the past. */
static int64_t grow_horizon(struct meter *meter, int64_t end_ns, int64_t now_ns)
{
    int64_t horizon = load(&meter->horizon_ns);
    for (;;) {
        int64_t from = later(horizon, now_ns);
        if (end_ns <= from)
            return 0;
        if (__atomic_compare_exchange_n(&meter->horizon_ns, &horizon, end_ns, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return end_ns - from;
    }
}

int64_t stream_queue(struct meter *meter, struct tail *tail, int64_t cost_ns, int64_t now_ns)
{
    int64_t seen = load(&tail->end_ns);
    int64_t from = earliest(meter, tail, now_ns);
    int64_t end;
    do {
        end = later(seen, from) + cost_ns;
    } while (!__atomic_compare_exchange_n(&tail->end_ns, &seen, end, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    if (is_set(&tail->legacy))
        raise_to(&meter->legacy_ns, end);
    else if (is_set(&tail->blocking))
        raise_to(&meter->blocking_ns, end);
    return grow_horizon(meter, end, now_ns);
}

int64_t stream_end(struct meter *meter, uintptr_t identity, CUstream handle)
{
    const struct tail *tail = stream_tail(meter, identity, handle);
    return later(load(&tail->end_ns), is_set(&tail->legacy) ? load(&meter->blocking_ns) : 0);
}

void stream_wait(struct meter *meter, uintptr_t identity, CUstream handle, int64_t end_ns)
{
    raise_to(&stream_tail(meter, identity, handle)->end_ns, end_ns);
}

int64_t stream_correct(struct meter *meter, struct tail *tail, int64_t by_ns, int64_t now_ns)
{
    if (by_ns >= 0)
        return stream_queue(meter, tail, by_ns, now_ns);
    int64_t end = __atomic_sub_fetch(&tail->end_ns, -by_ns, __ATOMIC_RELAXED);
    int64_t horizon = load(&meter->horizon_ns);
    if (end - by_ns < horizon) /* another stream's work ends later: nothing shrinks */
        return 0;
    int64_t latest = end;
    for (unsigned i = 0; i < METER_STREAMS; i++)
        latest = later(latest, load(&meter->tails[i].end_ns));
    if (latest >= horizon ||
        !__atomic_compare_exchange_n(&meter->horizon_ns, &horizon, latest, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return 0;
    return latest - horizon;
}

void streams_part(struct meter *meter, int64_t now_ns, int64_t queued_ns)
{
    int64_t end = now_ns + queued_ns;
    for (unsigned i = 0; i < METER_STREAMS; i++)
        __atomic_store_n(&meter->tails[i].end_ns, end, __ATOMIC_RELAXED);
    __atomic_store_n(&meter->horizon_ns, end, __ATOMIC_RELAXED);
}

unsigned streams_used(const struct meter *meter, uint32_t since)
{
    unsigned count = 0;
    for (unsigned i = 0; i < METER_STREAMS; i++) {
        const struct tail *tail = &meter->tails[i];
        uint32_t used = __atomic_load_n(&tail->used, __ATOMIC_RELAXED);
        count +=
            __atomic_load_n(&tail->stream, __ATOMIC_RELAXED) != 0 && (int32_t)(used - since) >= 0;
    }
    return count;
}
