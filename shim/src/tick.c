/*
 * One tick of a meter: measurements in, terms read, tokens collected, the queue bounded, the
 * others told.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "budget.h"
#include "ledger.h"
#include "limits_file.h"
#include "monotonic.h"
#include "probe.h"
#include "throttle.h"
#include "ticker.h"

enum {
    TICK_NS = 4000000,
    PAUSE_NS_MIN = 100000,    /* of a thread that waits for budget ... */
    PAUSE_NS_MAX = 3000000,   /* ... before it looks again */
    TICK_UNKNOWN_NS = 300000, /* when the first measurement of something is awaited */
    QUIET_NS = 200000000,     /* without launches and work for so long: sleep */
    START_NS = 2000000,       /* what a process may launch before its first tick */
    BURST_NS = 20000000,      /* saved up at most while nothing is wanted ... */
    CREDIT_NS = 40000000, /* ... and while the GPU or we keep the process waiting, plus a kernel */
    FREE_NS = 200000000,  /* what one may launch between two ticks who may have everything */
    LONGEST_NS = 200000000,   /* ... of this length at most */
    DEBT_NS = 2000000000,     /* deeper debts are forgiven */
    QUEUE_NS = 24000000,      /* unfinished work behind what runs ... */
    LENT_QUEUE_NS = 16000000, /* ... on time that a lender may want back */
    IDLE_NS_MAX = 50000,      /* a span with a longer gap before the launch says nothing */
    SEVERAL_TICKS = 250,      /* streams unused for so many ticks are forgotten */
};

/* A queue that has not moved for so long waits for more than a kernel. */
static const uint64_t STALL_NS = 3000000000;

/* What the probes of a meter say, collected during one tick. */
static struct {
    uint64_t oldest_ns; /* mark before the oldest unfinished one; UINT64_MAX: none is */
    int64_t oldest_charged_ns;
    int64_t held_ns; /* the device's clock cannot be past this */
    bool any;        /* something is unfinished */
} pending[METERS];

static uint32_t filling; /* 1: somebody is */

static struct terms terms[METERS]; /* changed and read while filling, or by the ticker */
static uint64_t tick_now_ns;

/* --- measurements -------------------------------------------------------------------------- */

static unsigned number_of(const struct meter *meter)
{
    return (unsigned)(meter - meters);
}

static void note_unfinished(struct probe *probe)
{
    unsigned i = number_of(probe->meter);
    pending[i].any = true;
    if (probe->marked_ns < pending[i].oldest_ns) {
        pending[i].oldest_ns = probe->marked_ns;
        pending[i].oldest_charged_ns = probe->charged_ns;
    }
    if (probe->tail != NULL && probe->end_ns < pending[i].held_ns)
        pending[i].held_ns = probe->end_ns;
}

/* Whether the launch itself took so long that it is a good part of the span. */
static bool is_interrupted(const struct probe *probe, int64_t span_ns)
{
    return probe->call_ns > PROBE_LATE_NS && probe->call_ns > span_ns / 8;
}

static enum span_quality quality_of(const struct probe *probe, int64_t span_ns)
{
    bool shared = probe->meter->shared;
    if (shared && span_ns > COST_SLICED_NS && cost_get(probe->cost->estimate_ns) > COST_SLICED_NS)
        return terms[number_of(probe->meter)].contended ? SPAN_SLICED : SPAN_WAITED;
    if (probe->late || (shared && probe->waited) || is_interrupted(probe, span_ns))
        return SPAN_WAITED;
    return shared ? SPAN_CONTENDED : SPAN_ALONE;
}

/*
 * Spans that say little about the kernel. The first launches of a kernel often do, because drivers
 * load code late; when all of them do, an upper bound is better than nothing.
 */
static bool is_useless(const struct probe *probe, struct cost *cost, int64_t span_ns)
{
    enum { PUT_OFF_MAX = 8 };
    if (cost_known(cost))
        return probe->idle_ns > IDLE_NS_MAX;
    bool doubtful = probe->late || is_interrupted(probe, span_ns - probe->idle_ns);
    uint32_t deferred = cost_get(cost->deferred) + 1;
    cost_set(cost->deferred, deferred);
    return doubtful && deferred <= PUT_OFF_MAX;
}

/* What this launch took counts, not the mean: a budget that grows while it runs must have room. */
static void note_longest(struct meter *meter, int64_t took_ns)
{
    int64_t longest_ns = meter->longest_ns - meter->longest_ns / 64;
    if (took_ns > longest_ns)
        longest_ns = took_ns < LONGEST_NS ? took_ns : LONGEST_NS;
    cost_set(meter->longest_ns, longest_ns);
}

static void take_span(struct probe *probe, int64_t span_ns)
{
    struct meter *meter = probe->meter;
    struct cost *cost = probe->cost;
    cost_arrived(cost);
    if (probe->was_unknown)
        __atomic_fetch_sub(&meter->unknown, 1, __ATOMIC_RELAXED);
    if (span_ns < 0 || __atomic_load_n(&cost->key, __ATOMIC_ACQUIRE) != probe->key ||
        is_useless(probe, cost, span_ns))
        return;
    meter->occupied_ns += (uint64_t)span_ns * (uint64_t)probe->window.launches;
    span_ns -= probe->idle_ns;
    int64_t correction_ns =
        cost_learn(cost, &probe->window, span_ns, quality_of(probe, span_ns), tick_now_ns);
    note_longest(meter, cost_get(cost->last_ns));
    if (probe->tail != NULL && cost_get(meter->several_streams))
        correction_ns =
            stream_correct(meter, probe->tail, correction_ns, (int64_t)tick_now_ns - meter->lag_ns);
    __atomic_fetch_sub(&meter->balance_ns, correction_ns, __ATOMIC_RELAXED);
    if (!meter->shared && correction_ns > 0)
        meter->doubtful_ns[meter->tick % METER_DOUBTS] += correction_ns;
}

/*
 * Others have come: that the last spans were longer than expected was their doing, which we did not
 * know yet.
 */
static void refund_doubtful(struct meter *meter)
{
    for (unsigned i = 0; i < METER_DOUBTS; i++) {
        __atomic_fetch_add(&meter->balance_ns, meter->doubtful_ns[i], __ATOMIC_RELAXED);
        meter->doubtful_ns[i] = 0;
    }
}

/* --- the balance --------------------------------------------------------------------------- */

/* Only one fills at a time: the ticker, or a thread that waits. */
static bool begin_filling(bool patiently)
{
    while (__atomic_exchange_n(&filling, 1, __ATOMIC_ACQUIRE) != 0) {
        if (!patiently)
            return false;
        sched_yield();
    }
    return true;
}

static void end_filling(void)
{
    __atomic_store_n(&filling, 0, __ATOMIC_RELEASE);
}

/* How much may be launched on top of what was unfinished at the last tick. */
static void bound_borrowed(struct meter *meter)
{
    if (!terms[number_of(meter)].borrowed || meter->stalled)
        return;
    int64_t queued = meter_charged(meter) - meter->finished_ns;
    int64_t balance = __atomic_load_n(&meter->balance_ns, __ATOMIC_RELAXED);
    if (balance > LENT_QUEUE_NS - queued)
        meter_credit(meter, LENT_QUEUE_NS - queued - balance);
}

/* The balance grows a little for who wants nothing, and further for who is kept waiting. */
static void fill(struct meter *meter, uint64_t now_ns, bool kept_waiting)
{
    unsigned i = number_of(meter);
    int64_t balance = __atomic_load_n(&meter->balance_ns, __ATOMIC_RELAXED);
    if (terms[i].whole || terms[i].rate >= LIMITS_WHOLE) {
        /* Nothing but the queue is bounded. */
        budget_collect(i, now_ns, terms[i].rate, 0);
        meter_credit(meter, FREE_NS - balance);
        bound_borrowed(meter);
        return;
    }
    int64_t ratio = (int64_t)terms[i].ratio;
    int64_t room = (kept_waiting ? CREDIT_NS + cost_get(meter->longest_ns) : BURST_NS) - balance;
    int64_t got = budget_collect(i, now_ns, terms[i].rate, room > 0 ? room * ratio / 1000 : 0);
    meter_credit(meter, got * 1000 / ratio);
    balance = __atomic_load_n(&meter->balance_ns, __ATOMIC_RELAXED);
    if (!kept_waiting && balance > BURST_NS)
        meter_credit(meter, BURST_NS - balance);
    if (balance < -DEBT_NS)
        meter_credit(meter, -DEBT_NS - balance);
}

/* The lender is back: what was launched on its time and is not finished counts as ours. */
static void give_back(struct meter *meter)
{
    int64_t balance = __atomic_load_n(&meter->balance_ns, __ATOMIC_RELAXED);
    int64_t queued = __atomic_load_n(&meter->queued_ns, __ATOMIC_RELAXED);
    if (balance > -queued)
        meter_credit(meter, -queued - balance);
}

/*
 * Programs may queue work behind something that only they let go on, with a later launch or after
 * all launches: what is held back then is held back for ever. The share holds without the bound.
 */
static void note_stall(struct meter *meter)
{
    unsigned i = number_of(meter);
    if (!pending[i].any || pending[i].oldest_ns != meter->head_ns) {
        meter->head_ns = pending[i].oldest_ns;
        meter->head_since_ns = tick_now_ns;
    }
    cost_set(meter->stalled, tick_now_ns - meter->head_since_ns > STALL_NS);
}

/* Bounds what lies behind the oldest unfinished launch. */
static void bound_queue(struct meter *meter)
{
    unsigned i = number_of(meter);
    note_stall(meter);
    meter->finished_ns = pending[i].any ? pending[i].oldest_charged_ns : meter_charged(meter);
    int64_t queued = meter_charged(meter) - meter->finished_ns;
    __atomic_store_n(&meter->queued_ns, queued > 0 ? queued : 0, __ATOMIC_RELAXED);
    bool full = queued > (terms[i].borrowed ? LENT_QUEUE_NS : QUEUE_NS) && !terms[i].whole &&
                !meter->stalled;
    __atomic_store_n(&meter->floor_ns, full ? FLOOR_CLOSED : 0, __ATOMIC_RELAXED);
    bound_borrowed(meter);
}

/* The device's clock stands still while a measured launch is overdue. */
static void hold_clock(struct meter *meter, uint64_t now_ns)
{
    unsigned i = number_of(meter);
    if (!pending[i].any) {
        __atomic_store_n(&meter->lag_ns, 0, __ATOMIC_RELAXED);
        return;
    }
    int64_t clock = (int64_t)now_ns - meter->lag_ns;
    if (clock > pending[i].held_ns)
        __atomic_store_n(&meter->lag_ns, (int64_t)now_ns - pending[i].held_ns, __ATOMIC_RELAXED);
}

/* --- one tick ------------------------------------------------------------------------------ */

static bool tick_meter(struct meter *meter, uint64_t now_ns)
{
    unsigned i = number_of(meter);
    uint64_t launches = __atomic_load_n(&meter->launches, __ATOMIC_RELAXED);
    bool launched = launches != meter->launches_seen;
    bool waiting = __atomic_load_n(&meter->waiters, __ATOMIC_SEQ_CST) != 0;
    meter->launches_seen = launches;
    if (launched || pending[i].any || waiting)
        meter->active_ns = now_ns;
    if (waiting)
        meter->wanted_ns = now_ns;
    hold_clock(meter, now_ns);
    begin_filling(true);
    if (meter->borrows && !terms[i].borrowed)
        give_back(meter);
    meter->borrows = terms[i].borrowed;
    fill(meter, now_ns, waiting || (meter->shared && pending[i].any));
    bound_queue(meter);
    end_filling();
    __atomic_store_n(&meter->tick, meter->tick + 1, __ATOMIC_RELAXED);
    meter->doubtful_ns[meter->tick % METER_DOUBTS] = 0;
    if (cost_get(meter->several_streams) && streams_used(meter, meter->tick - SEVERAL_TICKS) < 2)
        cost_set(meter->several_streams, false);
    /* One launch per tick is measured in any case, whatever is being launched. */
    __atomic_store_n(&meter->measure, true, __ATOMIC_RELAXED);
    __atomic_store_n(&meter->stream, NO_STREAM, __ATOMIC_RELAXED);
    /* What is queued has not been used yet; what was reported is not taken back. */
    int64_t used = meter_charged(meter) - __atomic_load_n(&meter->queued_ns, __ATOMIC_RELAXED);
    if (used > meter->reported_ns)
        meter->reported_ns = used;
    budget_report(i, now_ns,
                  &(struct report){
                      .busy_ns = (uint64_t)meter->reported_ns,
                      .throttled_ns = __atomic_load_n(&meter->throttled_ns, __ATOMIC_RELAXED),
                      .launches = launches,
                      .occupied_ns = meter->occupied_ns,
                      .active = launched || pending[i].any,
                      .wanting = waiting,
                  });
    meter->occupied_ns = 0;
    if (waiting) {
        __atomic_fetch_add(&meter->gate, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &meter->gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
    return now_ns - meter->active_ns < QUIET_NS;
}

/* --- filling in between -------------------------------------------------------------------- */

uint64_t tick_fill(struct meter *meter)
{
    if (!begin_filling(false))
        return PAUSE_NS_MIN;
    fill(meter, monotonic_ns(), true);
    struct terms now = terms[number_of(meter)];
    end_filling();
    if (__atomic_load_n(&meter->floor_ns, __ATOMIC_RELAXED) == FLOOR_CLOSED || now.rate == 0)
        return PAUSE_NS_MAX;
    int64_t balance = __atomic_load_n(&meter->balance_ns, __ATOMIC_RELAXED);
    uint64_t missing = balance > 0 ? 0 : (uint64_t)(1 - balance);
    uint64_t due = missing * now.ratio / 1000 * LIMITS_WHOLE / now.rate;
    if (due < PAUSE_NS_MIN)
        return PAUSE_NS_MIN;
    return due < PAUSE_NS_MAX ? due : PAUSE_NS_MAX;
}

/* --- all meters ---------------------------------------------------------------------------- */

static void read_terms(uint64_t now_ns)
{
    begin_filling(true);
    for (unsigned i = 0; i < METERS; i++) {
        if (!meters[i].open || !budget_terms(i, now_ns, &terms[i]))
            continue;
        bool shared = terms[i].contended || budget_siblings(i, now_ns);
        if (shared && !meters[i].shared)
            refund_doubtful(&meters[i]);
        __atomic_store_n(&meters[i].unbounded, terms[i].whole, __ATOMIC_RELAXED);
        __atomic_store_n(&meters[i].shared, shared, __ATOMIC_RELAXED);
    }
    end_filling();
}

uint64_t tick_meters(uint64_t now_ns)
{
    tick_now_ns = now_ns;
    for (unsigned i = 0; i < METERS; i++) {
        pending[i].any = false;
        pending[i].oldest_ns = UINT64_MAX;
        pending[i].held_ns = INT64_MAX;
    }
    read_terms(now_ns);
    probes_read(take_span, note_unfinished);
    uint64_t pause = 0;
    for (unsigned i = 0; i < METERS; i++) {
        if (!meters[i].open || !tick_meter(&meters[i], now_ns))
            continue;
        bool unknown = __atomic_load_n(&meters[i].unknown, __ATOMIC_RELAXED) != 0;
        if (pause == 0 || unknown)
            pause = unknown ? TICK_UNKNOWN_NS : TICK_NS;
    }
    return pause;
}

bool tick_missed(void)
{
    for (unsigned i = 0; i < METERS; i++)
        if (__atomic_load_n(&meters[i].launches, __ATOMIC_SEQ_CST) != meters[i].launches_seen)
            return true;
    return false;
}

void tick_begin(uint64_t now_ns)
{
    filling = 0; /* in a forked child: whoever was filling is not here */
    unsigned count = ledger_devices();
    for (unsigned i = 0; i < count && i < METERS; i++) {
        struct meter *meter = &meters[i];
        if (!budget_terms(i, now_ns, &terms[i]))
            continue;
        meter->stream = NO_STREAM;
        meter->balance_ns = START_NS;
        meter->credited_ns = START_NS;
        meter->floor_ns = 0;
        meter->waiters = 0;
        meter->turns_over = meter->turns_taken;
        meter->unknown = 0;
        meter->last_stream = 0;
        meter->several_streams = false;
        meter->active_ns = now_ns;
        meter->reported_ns = 0;
        meter->open = true;
    }
}
