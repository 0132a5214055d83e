/* The long way of a launch: finding its meter, waiting for budget, charging, measuring. */

#define _GNU_SOURCE
#include "throttle.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device.h"
#include "ledger.h"
#include "monotonic.h"
#include "ticker.h"

enum {
    /* Launches of unknown cost that may be under way at once. */
    UNKNOWN_MAX = 4,
    /* What is measured may itself wait for the launch that is held: not for longer than this. */
    BLIND_NS = 1000000000,
    /* Who waits for another thread's turn looks again by itself after so long. */
    LOOK_AGAIN_NS = 20000000,
    /* A kernel that is followed closely by another one is not longer than this. */
    LONG_NS = 4000000,
};

struct meter meters[METERS];
bool throttle_on = true;
uint32_t throttle_captures;

/* Streams are told apart by handle; a thread's own default stream by the thread. */
uintptr_t throttle_stream(const struct launch *launch)
{
    bool own =
        launch->stream == CU_STREAM_PER_THREAD || (launch->stream == NULL && launch->per_thread);
    if (own)
        return (uintptr_t)__builtin_thread_pointer() | 1;
    return launch->stream == NULL ? (uintptr_t)CU_STREAM_LEGACY : (uintptr_t)launch->stream;
}

/* Whether the launch only becomes a node of a graph, which is charged when the graph is. */
static bool is_captured(const struct launch *launch)
{
    if (__atomic_load_n(&throttle_captures, __ATOMIC_RELAXED) == 0)
        return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = launch->per_thread ? real.cuStreamIsCapturing_ptsz(launch->stream, &status)
                                         : real.cuStreamIsCapturing(launch->stream, &status);
    /* An error means that the launch is going to fail for the sake of a capture. */
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Whether the handle says which device it is about; default streams are whatever context's. */
static bool is_named(CUstream stream)
{
    return stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

static struct meter *meter_of(const struct launch *launch)
{
    CUdevice device;
    if (is_named(launch->stream)) {
        CUcontext context;
        CUcontext popped;
        if (real.cuStreamGetCtx(launch->stream, &context) != CUDA_SUCCESS ||
            real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
            return NULL;
        CUresult result = real.cuCtxGetDevice(&device);
        real.cuCtxPopCurrent_v2(&popped);
        if (result != CUDA_SUCCESS)
            return NULL;
    } else if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return NULL;
    }
    int number = device_of(device);
    return number < 0 || number >= METERS || !meters[number].open ? NULL : &meters[number];
}

/*
 * The estimate of a launch; `key` becomes what it is kept under. A kernel of a library has the same
 * handle in every context, so one that was first seen on another device has a key of its own here.
 */
static struct cost *cost_of(const struct launch *launch, uint64_t *key)
{
    *key = launch->key;
    struct cost *cost = cost_entry(*key);
    bool found = __atomic_load_n(&cost->key, __ATOMIC_ACQUIRE) == *key && cost_get(cost->meter);
    if (found && ledger_devices() == 1)
        return cost;
    struct meter *meter = meter_of(launch);
    if (meter == NULL)
        return NULL;
    if (found && cost_get(cost->meter) != meter) {
        *key ^= (uint64_t)(meter - meters + 1) << 56;
        cost = cost_entry(*key);
        found = __atomic_load_n(&cost->key, __ATOMIC_ACQUIRE) == *key;
    }
    if (!found)
        cost_reset(cost, *key, meter);
    return cost;
}

/* --- waiting ------------------------------------------------------------------------------- */

/*
 * Whether a launch of unknown cost should rather wait until others of the kind are measured. Among
 * others the first measurement is too high, so nothing is queued by it. Before the first tick it is
 * not known whether there are others.
 */
static bool is_blind(const struct meter *meter, const struct cost *cost)
{
    if (cost_known(cost) || cost_get(meter->unbounded))
        return false;
    bool alone = cost_get(meter->tick) != 0 && !cost_get(meter->shared);
    return (!alone && cost_get(cost->under_way) != 0) || cost_get(meter->unknown) >= UNKNOWN_MAX;
}

static bool may_launch(const struct meter *meter, const struct cost *cost, uint64_t waited_ns)
{
    if (is_blind(meter, cost) && waited_ns < BLIND_NS)
        return false;
    if (cost_is_risky(cost) && !cost_get(meter->unbounded) && !cost_get(meter->stalled))
        return false;
    return __atomic_load_n(&meter->balance_ns, __ATOMIC_RELAXED) >
           __atomic_load_n(&meter->floor_ns, __ATOMIC_RELAXED);
}

/*
 * Threads take turns in the order in which they came: those on the short way could otherwise go on
 * for as long as they like while one waits. Says whether a turn was taken, which must be passed.
 */
static bool await_budget(struct meter *meter, const struct cost *cost)
{
    if (__atomic_load_n(&meter->waiters, __ATOMIC_SEQ_CST) == 0 && may_launch(meter, cost, 0))
        return false;
    uint64_t since = monotonic_ns();
    __atomic_fetch_add(&meter->waiters, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&meter->stream, NO_STREAM, __ATOMIC_SEQ_CST);
    uint32_t turn = __atomic_fetch_add(&meter->turns_taken, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        uint32_t gate = __atomic_load_n(&meter->gate, __ATOMIC_SEQ_CST);
        bool is_next = __atomic_load_n(&meter->turns_over, __ATOMIC_SEQ_CST) == turn;
        /* Who is next fills the meter itself: no need to wait for the ticker's time slice. */
        uint64_t pause_ns = is_next ? tick_fill(meter) : LOOK_AGAIN_NS;
        if (is_next && may_launch(meter, cost, monotonic_ns() - since))
            break;
        const struct timespec patience = {.tv_nsec = (long)pause_ns};
        syscall(SYS_futex, &meter->gate, FUTEX_WAIT_PRIVATE, gate, &patience, NULL, 0);
    }
    __atomic_fetch_add(&meter->throttled_ns, monotonic_ns() - since, __ATOMIC_RELAXED);
    return true;
}

/* After the launch is charged: the next who waits may look. */
static void pass_turn(struct meter *meter)
{
    __atomic_fetch_add(&meter->turns_over, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&meter->gate, 1, __ATOMIC_SEQ_CST);
    if (__atomic_sub_fetch(&meter->waiters, 1, __ATOMIC_SEQ_CST) != 0)
        syscall(SYS_futex, &meter->gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* --- charging ------------------------------------------------------------------------------ */

static int64_t device_clock(const struct meter *meter)
{
    return (int64_t)monotonic_ns() - __atomic_load_n(&meter->lag_ns, __ATOMIC_RELAXED);
}

/* The launch's stream when there are several, else NULL. */
static struct tail *tail_of(struct meter *meter, const struct launch *launch)
{
    uintptr_t identity = throttle_stream(launch);
    uintptr_t last = __atomic_exchange_n(&meter->last_stream, identity, __ATOMIC_RELAXED);
    if (last != identity && last != 0 && !cost_get(meter->several_streams)) {
        streams_part(meter, device_clock(meter),
                     __atomic_load_n(&meter->queued_ns, __ATOMIC_RELAXED));
        cost_set(meter->several_streams, true);
    }
    struct tail *tail = stream_tail(meter, identity, launch->stream);
    return cost_get(meter->several_streams) ? tail : NULL;
}

/*
 * Gives back what overlaps with other streams. At the last moment before the driver is called: who
 * passes a turn wakes another thread and may have to wait for a processor itself, and work that is
 * launched one after the other does not overlap.
 */
static void give_back_overlap(struct meter *meter, struct tail *tail, int64_t charged_ns)
{
    int64_t grown = stream_queue(meter, tail, charged_ns, device_clock(meter));
    __atomic_fetch_add(&meter->balance_ns, charged_ns - grown, __ATOMIC_RELAXED);
}

/* Whether this process has launched on more than one device. */
static bool uses_several_devices(const struct meter *meter)
{
    static const struct meter *first;
    static bool several;
    const struct meter *none = NULL;
    if (!__atomic_compare_exchange_n(&first, &none, meter, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) &&
        none != meter)
        __atomic_store_n(&several, true, __ATOMIC_RELAXED);
    return __atomic_load_n(&several, __ATOMIC_RELAXED);
}

/* Lets the following launches on the same stream take the short way. */
static void shorten(struct meter *meter, const struct launch *launch)
{
    bool own = launch->per_thread && launch->stream == NULL;
    if (uses_several_devices(meter) && !is_named(launch->stream))
        return;
    if (!cost_get(meter->several_streams) &&
        __atomic_load_n(&throttle_captures, __ATOMIC_RELAXED) == 0 &&
        __atomic_load_n(&meter->waiters, __ATOMIC_RELAXED) == 0 &&
        launch->stream != CU_STREAM_PER_THREAD)
        __atomic_store_n(&meter->stream, own ? throttle_stream(launch) : (uintptr_t)launch->stream,
                         __ATOMIC_RELAXED);
}

/*
 * While others use the GPU, a launch on a stream with nothing to do waits for a time slice, and its
 * span with it. The next one may follow close behind, so it is measured instead; not so after a
 * long kernel, which its container has to wait for.
 */
static bool is_put_off(struct meter *meter, struct cost *cost, const struct probe *probe)
{
    enum { PUT_OFF_MAX = 8 };
    if (!probe->waited || !__atomic_load_n(&meter->shared, __ATOMIC_RELAXED) || !cost_known(cost) ||
        cost_get(cost->estimate_ns) > LONG_NS)
        return false;
    uint32_t deferred = cost_get(cost->deferred) + 1;
    cost_set(cost->deferred, deferred > PUT_OFF_MAX ? 0 : deferred);
    if (deferred > PUT_OFF_MAX)
        return false;
    __atomic_store_n(&meter->measure, true, __ATOMIC_RELAXED);
    return true;
}

/* Measures the launch if it is time to; NULL: not this one. */
static struct probe *begin_measuring(struct meter *meter, struct cost *cost, uint64_t key,
                                     const struct launch *launch)
{
    bool known = cost_known(cost);
    bool due = __atomic_exchange_n(&meter->measure, false, __ATOMIC_RELAXED);
    bool counted_down = cost_get(cost->countdown) < 0;
    if ((!due && known && !counted_down) || cost_postpone(cost))
        return NULL;
    struct probe *probe = probe_begin(meter, launch->stream, launch->per_thread);
    if (probe == NULL)
        return NULL;
    if (is_put_off(meter, cost, probe)) {
        probe_drop(probe);
        return NULL;
    }
    probe->cost = cost;
    probe->key = key;
    probe->window = cost_close(cost);
    probe->charged_ns = meter_charged(meter);
    probe->was_unknown = !known;
    __atomic_fetch_add(&cost->under_way, 1, __ATOMIC_RELAXED);
    if (!known)
        __atomic_fetch_add(&meter->unknown, 1, __ATOMIC_RELAXED);
    return probe;
}

struct probe *throttle_admit(const struct launch *launch)
{
    if (!ticker_started() || is_captured(launch))
        return NULL;
    uint64_t key;
    struct cost *cost = cost_of(launch, &key);
    if (cost == NULL)
        return NULL;
    struct meter *meter = cost_get(cost->meter);
    bool has_turn = await_budget(meter, cost);
    int64_t charged_ns = cost_get(cost->estimate_ns);
    __atomic_fetch_sub(&cost->countdown, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&meter->balance_ns, charged_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&meter->launches, 1, __ATOMIC_SEQ_CST);
    struct tail *tail = tail_of(meter, launch);
    ticker_notice();
    if (has_turn)
        pass_turn(meter);
    shorten(meter, launch);
    struct probe *probe = begin_measuring(meter, cost, key, launch);
    if (tail != NULL)
        give_back_overlap(meter, tail, charged_ns);
    if (probe != NULL) {
        probe->tail = tail;
        probe->end_ns = tail == NULL ? 0 : __atomic_load_n(&tail->end_ns, __ATOMIC_RELAXED);
        probe_launching(probe);
    }
    return probe;
}

void throttle_launched(struct probe *probe, CUresult result)
{
    if (probe == NULL)
        return;
    struct meter *meter = probe->meter;
    struct cost *cost = probe->cost;
    bool was_unknown = probe->was_unknown;
    bool under_way = false;
    if (result == CUDA_SUCCESS)
        under_way = probe_end(probe);
    else
        probe_drop(probe);
    if (under_way)
        return;
    cost_arrived(cost);
    if (was_unknown)
        __atomic_fetch_sub(&meter->unknown, 1, __ATOMIC_RELAXED);
}
