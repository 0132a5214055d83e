/* Pairs of events around launches; see probe.h. */

#include "probe.h"

#include <pthread.h>
#include <string.h>

#include "monotonic.h"

struct probe_pool {
    const struct meter *meter; /* of its device */
    CUcontext context;         /* NULL: the pool is free */
    uint64_t vacant;           /* bit set: may be taken */
    uint64_t under_way;        /* bit set: launched, to be read */
    struct probe probes[PROBES];
};

static struct probe_pool pools[PROBE_POOLS];

/* Held while the ticker talks to the driver about a pool, so a context cannot vanish under it. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static bool stopped; /* nothing is asked of the driver any more */

static struct probe_pool *pool_of(CUcontext context)
{
    for (unsigned i = 0; i < PROBE_POOLS; i++) {
        CUcontext owner = __atomic_load_n(&pools[i].context, __ATOMIC_ACQUIRE);
        if (owner == NULL && __atomic_compare_exchange_n(&pools[i].context, &owner, context, false,
                                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&pools[i].vacant, UINT64_MAX, __ATOMIC_RELEASE);
            return &pools[i];
        }
        if (owner == context)
            return &pools[i];
    }
    return NULL;
}

static CUcontext context_of(CUstream stream)
{
    CUcontext context = NULL;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return real.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
    return real.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS ? context : NULL;
}

/* Creates a probe's events in its own context, which need not be the current one. */
static bool create_events(struct probe *probe, CUcontext context)
{
    CUcontext current = NULL;
    CUcontext popped;
    /* In any other mode a capture by whatever thread would be invalidated. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    real.cuThreadExchangeStreamCaptureMode(&mode);
    real.cuCtxGetCurrent(&current);
    bool elsewhere = current != context && real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    bool created = real.cuEventCreate(&probe->start, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
    if (created && real.cuEventCreate(&probe->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        real.cuEventDestroy_v2(probe->start);
        created = false;
    }
    if (!created)
        probe->start = NULL;
    if (elsewhere)
        real.cuCtxPopCurrent_v2(&popped);
    real.cuThreadExchangeStreamCaptureMode(&mode);
    return created;
}

static CUresult mark(const struct probe *probe, CUevent event)
{
    return probe->per_thread ? real.cuEventRecord_ptsz(event, probe->stream)
                             : real.cuEventRecord(event, probe->stream);
}

static uint64_t bit_of(const struct probe *probe)
{
    return UINT64_C(1) << (probe - probe->pool->probes);
}

void probe_drop(struct probe *probe)
{
    __atomic_fetch_or(&probe->pool->vacant, bit_of(probe), __ATOMIC_RELEASE);
}

struct probe *probe_begin(struct meter *meter, CUstream stream, bool per_thread)
{
    CUcontext context = context_of(stream);
    struct probe_pool *pool = context == NULL ? NULL : pool_of(context);
    if (pool == NULL)
        return NULL;
    uint64_t vacant = __atomic_load_n(&pool->vacant, __ATOMIC_RELAXED);
    do {
        if (vacant == 0)
            return NULL;
    } while (!__atomic_compare_exchange_n(&pool->vacant, &vacant, vacant & (vacant - 1), true,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    struct probe *probe = &pool->probes[__builtin_ctzll(vacant)];
    cost_set(pool->meter, meter);
    probe->pool = pool;
    probe->meter = meter;
    probe->stream = stream;
    probe->per_thread = per_thread;
    if (probe->start == NULL && !create_events(probe, context)) {
        probe_drop(probe);
        return NULL;
    }
    uint64_t before_ns = monotonic_ns();
    if (mark(probe, probe->start) != CUDA_SUCCESS) {
        probe_drop(probe);
        return NULL;
    }
    probe->marked_ns = before_ns + (monotonic_ns() - before_ns) / 2;
    /*
     * A mark that has been reached at once stands on a stream with nothing to do: the time until
     * the launch comes would be measured, too.
     */
    probe->waited = real.cuEventQuery(probe->start) == CUDA_SUCCESS;
    return probe;
}

void probe_launching(struct probe *probe)
{
    probe->launched_ns = monotonic_ns();
    probe->idle_ns = probe->waited ? (int64_t)(probe->launched_ns - probe->marked_ns) : 0;
}

/*
 * Whether what kept us, and not the kernel, may have been measured. On a stream with nothing else
 * to do, a kernel may end before its end is marked; on another one, what was there may end before
 * the launch comes. Such a span is an upper bound.
 */
static bool is_late(const struct probe *probe, uint64_t called_ns)
{
    if (probe->waited)
        return real.cuEventQuery(probe->end) == CUDA_SUCCESS &&
               monotonic_ns() - probe->launched_ns > PROBE_LATE_NS;
    return called_ns - probe->marked_ns > PROBE_LATE_NS &&
           real.cuEventQuery(probe->start) == CUDA_SUCCESS;
}

bool probe_end(struct probe *probe)
{
    uint64_t called_ns = monotonic_ns();
    if (mark(probe, probe->end) != CUDA_SUCCESS) {
        probe_drop(probe);
        return false;
    }
    probe->call_ns = probe->waited ? (int64_t)(called_ns - probe->launched_ns) : 0;
    probe->late = is_late(probe, called_ns);
    __atomic_fetch_or(&probe->pool->under_way, bit_of(probe), __ATOMIC_RELEASE);
    return true;
}

static void read_probe(struct probe *probe, void (*take)(struct probe *, int64_t),
                       void (*wait)(struct probe *))
{
    CUresult reached = real.cuEventQuery(probe->end);
    if (reached == CUDA_ERROR_NOT_READY) {
        wait(probe);
        return;
    }
    float milliseconds = 0;
    if (reached == CUDA_SUCCESS &&
        real.cuEventElapsedTime(&milliseconds, probe->start, probe->end) == CUDA_SUCCESS)
        take(probe, (int64_t)((double)milliseconds * 1e6));
    else
        take(probe, -1);
    __atomic_fetch_and(&probe->pool->under_way, ~bit_of(probe), __ATOMIC_RELAXED);
    probe_drop(probe);
}

void probes_read(void (*take)(struct probe *probe, int64_t span_ns),
                 void (*wait)(struct probe *probe))
{
    pthread_mutex_lock(&reading);
    for (unsigned i = 0; i < PROBE_POOLS && !stopped; i++) {
        CUcontext context = __atomic_load_n(&pools[i].context, __ATOMIC_ACQUIRE);
        uint64_t under_way = __atomic_load_n(&pools[i].under_way, __ATOMIC_ACQUIRE);
        if (context == NULL || under_way == 0 || real.cuCtxSetCurrent(context) != CUDA_SUCCESS)
            continue;
        for (; under_way != 0; under_way &= under_way - 1)
            read_probe(&pools[i].probes[__builtin_ctzll(under_way)], take, wait);
    }
    pthread_mutex_unlock(&reading);
}

void probes_hold(void)
{
    pthread_mutex_lock(&reading);
}

void probes_release(void)
{
    pthread_mutex_unlock(&reading);
}

/* The driver has destroyed the events with their context. */
static void forget(struct probe_pool *pool)
{
    for (unsigned i = 0; i < PROBES; i++) {
        struct probe *probe = &pool->probes[i];
        if ((pool->under_way & UINT64_C(1) << i) == 0)
            continue;
        cost_arrived(probe->cost);
        if (probe->was_unknown)
            __atomic_fetch_sub(&probe->meter->unknown, 1, __ATOMIC_RELAXED);
    }
    memset(pool->probes, 0, sizeof pool->probes);
    pool->under_way = 0;
    __atomic_store_n(&pool->vacant, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&pool->context, NULL, __ATOMIC_RELEASE);
}

void probes_forget(CUcontext context)
{
    for (unsigned i = 0; i < PROBE_POOLS; i++)
        if (pools[i].context != NULL && pools[i].context == context)
            forget(&pools[i]);
}

void probes_forget_device(int device)
{
    for (unsigned i = 0; i < PROBE_POOLS; i++)
        if (pools[i].context != NULL && device >= 0 && cost_get(pools[i].meter) == &meters[device])
            forget(&pools[i]);
}

void probes_stop(void)
{
    pthread_mutex_lock(&reading);
    for (unsigned i = 0; i < PROBE_POOLS; i++) {
        __atomic_store_n(&pools[i].vacant, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&pools[i].under_way, 0, __ATOMIC_RELEASE);
    }
    stopped = true;
    pthread_mutex_unlock(&reading);
}

void probes_reset(void)
{
    memset(pools, 0, sizeof pools);
    pthread_mutex_init(&reading, NULL);
}
