/* One tick of the arbiter: reads reports, decides GPU by GPU, writes what has changed. */

#define _GNU_SOURCE
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "arbiter.h"

enum {
    ACTIVE_NS = 100000000, /* a report of activity counts for so long */
    HELD_NS = 60000000,    /* a report of held launches, too */
    FRESH_NS = 300000000,  /* who has just come back is taken to want its whole share */
    RISE_NS = 60000000,    /* a rise in demand is believed over about this ... */
    FALL_NS = 500000000,   /* ... and a fall over this: what is lent too early is missed at once */
    RENEWALS = 2,          /* in the lifetime of a grant: one may come late */
    SMALL_CHANGE = 50,     /* of a grant, in hundredths of a percent */
    SEATS_PER_GPU = 256,
    SETTLED_NS = 40000000, /* who is active is read again after so long; who is not, every time */
};

/* Between two ticks, by pace. */
static const uint64_t PAUSES_NS[] = {
    [ARBITER_IDLE] = 100000000,
    [ARBITER_BUSY] = 50000000,
    [ARBITER_LENDING] = 30000000,
};

/* --- reading ------------------------------------------------------------------------------- */

static void note_demand(struct arbiter_seat *seat, uint64_t now_ns, uint64_t occupied_ns)
{
    uint64_t elapsed = now_ns - seat->read_ns;
    if (seat->read_ns == 0 || elapsed == 0 || occupied_ns < seat->occupied_ns)
        return;
    uint64_t demand = (occupied_ns - seat->occupied_ns) * LIMITS_WHOLE / elapsed;
    if (demand > LIMITS_WHOLE)
        demand = LIMITS_WHOLE;
    uint64_t period = demand > seat->demand ? RISE_NS : FALL_NS;
    uint64_t weight = elapsed < period ? elapsed : period;
    seat->demand = (uint32_t)((seat->demand * (period - weight) + demand * weight) / period);
}

/* The tenant can write anything into its usage file: times in the future are now at most. */
static uint64_t past(uint64_t reported_ns, uint64_t now_ns)
{
    return reported_ns < now_ns ? reported_ns : now_ns;
}

static void read_seat(struct arbiter_seat *seat, uint64_t now_ns)
{
    struct usage_compute_counters counters;
    if (pread(seat->usage_fd, &counters, sizeof counters, seat->counters_at) !=
        (ssize_t)sizeof counters) {
        seat->is_lost = 1;
        return;
    }
    seat->is_lost = 0;
    uint64_t active_ns = past(counters.active_ns, now_ns);
    if (active_ns > seat->active_ns + ACTIVE_NS)
        seat->began_ns = now_ns;
    seat->active_ns = active_ns;
    seat->wanted_ns = past(counters.wanted_ns, now_ns);
    note_demand(seat, now_ns, counters.occupied_ns);
    if (seat->active_ns + ACTIVE_NS < now_ns)
        seat->demand = 0;
    seat->occupied_ns = counters.occupied_ns;
    seat->busy_ns = counters.busy_ns;
    seat->read_ns = now_ns;
}

static int is_active(const struct arbiter_seat *seat, uint64_t now_ns)
{
    return !seat->is_lost && seat->active_ns + ACTIVE_NS >= now_ns;
}

/* What the limits say, which is read again only when they have changed. */
static int read_terms(struct arbiter_seat *seat)
{
    struct limits_watch watch = {seat->watch, seat->watched};
    if (limits_unchanged(&watch))
        return (int)seat->has_terms;
    struct limits_body body;
    int slot = limits_follow(seat->limits, seat->limits_bytes, ACCOUNT_COMPUTE, &body, &watch);
    seat->watch = watch.word;
    seat->watched = watch.seen;
    seat->has_terms = slot >= 0 && seat->device < body.head.device_count;
    if (!seat->has_terms)
        return 0;
    const struct limits_device *device = &body.devices[seat->device];
    seat->share = device->share;
    seat->policy = body.head.policy;
    seat->weight = body.head.weight == 0 ? 1 : body.head.weight;
    /* Somebody else has written them, and our grant is gone. */
    if (device->grant_until_ns < seat->written_ns)
        seat->is_dirty = 1;
    return 1;
}

/* --- writing ------------------------------------------------------------------------------- */

static void write_seat(struct arbiter_seat *seat, uint32_t grant, uint64_t now_ns,
                       uint64_t until_ns)
{
    struct limits_body body;
    /* Others change limits, too (a resize): take turns, but never wait for them here. */
    if (flock(seat->limits_fd, LOCK_EX | LOCK_NB) != 0)
        return;
    int written = limits_read(seat->limits, seat->limits_bytes, ACCOUNT_COMPUTE, &body) >= 0 &&
                  seat->device < body.head.device_count;
    if (written) {
        struct limits_device *device = &body.devices[seat->device];
        device->grant = grant;
        device->grant_until_ns = until_ns;
        device->contended_ns = seat->contended_ns;
        memcpy(device->ratios, seat->ratios, sizeof device->ratios);
        written = limits_publish(seat->limits, seat->limits_bytes, &body) == 0;
    }
    flock(seat->limits_fd, LOCK_UN);
    if (written) {
        seat->written_ns = now_ns;
        seat->written_grant = grant;
        seat->is_dirty = 0;
    }
}

/* --- one GPU ------------------------------------------------------------------------------- */

static int claim_of(struct arbiter_seat *seat, uint64_t now_ns, struct arbiter_claim *claim)
{
    if (seat->is_lost || !read_terms(seat))
        return 0;
    int active = is_active(seat, now_ns);
    *claim = (struct arbiter_claim){
        .share = seat->share,
        .policy = seat->policy,
        .weight = seat->weight,
        .demand = active ? (seat->demand == 0 ? 1 : seat->demand) : 0,
        .held =
            active && (seat->wanted_ns + HELD_NS >= now_ns || seat->began_ns + FRESH_NS >= now_ns),
    };
    return 1;
}

/* Small changes wait for the next renewal. */
static int is_worth_writing(const struct arbiter_seat *seat, uint32_t grant, int contended,
                            uint64_t now_ns, uint64_t lifetime_ns)
{
    uint32_t apart =
        grant > seat->written_grant ? grant - seat->written_grant : seat->written_grant - grant;
    return apart > SMALL_CHANGE || seat->is_dirty || contended != (seat->contended_ns != 0) ||
           seat->written_ns + lifetime_ns / RENEWALS < now_ns;
}

/* Answers the pace. */
static uint32_t tick_gpu(struct arbiter_seat *seats, uint32_t count, uint64_t now_ns,
                         uint64_t lifetime_ns)
{
    struct arbiter_claim claims[SEATS_PER_GPU];
    struct arbiter_seat *claimants[SEATS_PER_GPU];
    uint32_t claim_count = 0;
    uint32_t active = 0;
    for (uint32_t i = 0; i < count && claim_count < SEATS_PER_GPU; i++) {
        if (!is_active(&seats[i], now_ns) || seats[i].read_ns + SETTLED_NS <= now_ns)
            read_seat(&seats[i], now_ns);
        active += is_active(&seats[i], now_ns) != 0;
        if (claim_of(&seats[i], now_ns, &claims[claim_count]))
            claimants[claim_count++] = &seats[i];
    }
    arbiter_decide(claims, claim_count);
    uint32_t pace = active == 0 ? ARBITER_IDLE : ARBITER_BUSY;
    for (uint32_t i = 0; i < claim_count; i++) {
        struct arbiter_seat *seat = claimants[i];
        if (claims[i].grant > claims[i].share)
            pace = ARBITER_LENDING;
        int contended = active > (is_active(seat, now_ns) ? 1u : 0u);
        if (is_worth_writing(seat, claims[i].grant, contended, now_ns, lifetime_ns)) {
            seat->contended_ns = contended ? now_ns : 0;
            write_seat(seat, claims[i].grant, now_ns, now_ns + lifetime_ns);
        }
    }
    return pace;
}

uint32_t arbiter_tick(struct arbiter_seat *seats, uint32_t count, uint64_t now_ns,
                      uint64_t lifetime_ns)
{
    uint32_t pace = ARBITER_IDLE;
    for (uint32_t from = 0; from < count;) {
        uint32_t to = from + 1;
        while (to < count && seats[to].gpu == seats[from].gpu)
            to++;
        uint32_t found = tick_gpu(seats + from, to - from, now_ns, lifetime_ns);
        pace = found > pace ? found : pace;
        from = to;
    }
    return pace;
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint32_t arbiter_run(struct arbiter_seat *seats, uint32_t count, uint64_t duration_ns,
                     uint64_t lifetime_ns)
{
    uint64_t now_ns = monotonic_ns();
    uint64_t end_ns = now_ns + duration_ns;
    uint32_t pace;
    do {
        pace = arbiter_tick(seats, count, now_ns, lifetime_ns);
        uint64_t pause_ns = PAUSES_NS[pace];
        now_ns = monotonic_ns();
        uint64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        const struct timespec pause = {
            .tv_nsec = (long)(pause_ns < left_ns ? pause_ns : left_ns),
        };
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        now_ns = monotonic_ns();
    } while (now_ns < end_ns);
    return pace;
}

/* --- what processes were charged ----------------------------------------------------------- */

static int read_words(const struct arbiter_seat *seat, uint64_t *words, uint32_t count, uint32_t at)
{
    size_t bytes = count * sizeof *words;
    return pread(seat->usage_fd, words, bytes, at) == (ssize_t)bytes;
}

uint32_t arbiter_charges(const struct arbiter_seat *seat, struct arbiter_charge *charges,
                         uint32_t most)
{
    uint64_t owners[USAGE_SLOTS_MAX];
    uint64_t busy[USAGE_SLOTS_MAX];
    uint64_t mark;
    if (!read_words(seat, &mark, 1, offsetof(struct usage_header, mark)))
        return 0;
    uint64_t used = usage_decode(mark); /* a damaged one is a large number */
    uint32_t count = used < seat->slot_count ? (uint32_t)used : seat->slot_count;
    if (!read_words(seat, owners, count, seat->owners_at) ||
        !read_words(seat, busy, count, seat->busy_at))
        return 0;
    uint32_t found = 0;
    for (uint32_t slot = 0; slot < count && found < most; slot++) {
        struct usage_name name = usage_name(owners[slot]);
        if (name.pid > 0)
            charges[found++] = (struct arbiter_charge){.slot = slot,
                                                       .pid = name.pid,
                                                       .namespace_id = name.namespace_id,
                                                       .busy_ns = busy[slot]};
    }
    return found;
}

void arbiter_withdraw(struct arbiter_seat *seats, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        memset(seats[i].ratios, 0, sizeof seats[i].ratios);
        seats[i].contended_ns = 0;
        write_seat(&seats[i], 0, 0, 0);
    }
}
