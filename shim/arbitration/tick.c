/* One tick of the arbiter: reads reports, decides GPU by GPU, writes what has changed. */

#define _GNU_SOURCE
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "arbiter.h"

enum {
    ACTIVE_NS = 100000000, /* a report of activity counts for so long */
    HELD_NS = 60000000,    /* a report of held launches, too */
    FRESH_NS = 300000000,  /* who has just come back is taken to want its whole share */
    RISE_NS = 60000000,    /* a rise in demand is believed over about this ... */
    FALL_NS = 500000000,   /* ... and a fall over this: what is lent too early is missed at once */
    SEATS_PER_GPU = 256,
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

/* --- writing ------------------------------------------------------------------------------- */

static int write_seat(struct arbiter_seat *seat, uint32_t grant, uint64_t now_ns, uint64_t until_ns,
                      uint64_t contended_ns)
{
    struct limits_body body;
    /* Others change limits, too (a resize): take turns, but never wait for them here. */
    if (flock(seat->limits_fd, LOCK_EX | LOCK_NB) != 0)
        return 0;
    int written = limits_read(seat->limits, seat->limits_bytes, ACCOUNT_COMPUTE, &body) >= 0 &&
                  seat->device < body.head.device_count;
    if (written) {
        struct limits_device *device = &body.devices[seat->device];
        device->grant = grant;
        device->grant_until_ns = until_ns;
        device->contended_ns = contended_ns;
        memcpy(device->ratios, seat->ratios, sizeof device->ratios);
        written = limits_publish(seat->limits, seat->limits_bytes, &body) == 0;
    }
    flock(seat->limits_fd, LOCK_UN);
    if (written) {
        seat->written_ns = now_ns;
        seat->written_grant = grant;
        seat->is_dirty = 0;
    }
    return written;
}

/* --- one GPU ------------------------------------------------------------------------------- */

static int claim_of(struct arbiter_seat *seat, uint64_t now_ns, struct arbiter_claim *claim)
{
    struct limits_body body;
    if (seat->is_lost || limits_read(seat->limits, seat->limits_bytes, ACCOUNT_COMPUTE, &body) < 0)
        return 0;
    int active = is_active(seat, now_ns);
    *claim = (struct arbiter_claim){
        .share = body.devices[seat->device].share,
        .policy = body.head.policy,
        .weight = body.head.weight == 0 ? 1 : body.head.weight,
        .demand = active ? (seat->demand == 0 ? 1 : seat->demand) : 0,
        .held =
            active && (seat->wanted_ns + HELD_NS >= now_ns || seat->began_ns + FRESH_NS >= now_ns),
    };
    return seat->device < body.head.device_count;
}

static uint32_t tick_gpu(struct arbiter_seat *seats, uint32_t count, uint64_t now_ns,
                         uint64_t lifetime_ns)
{
    struct arbiter_claim claims[SEATS_PER_GPU];
    struct arbiter_seat *claimants[SEATS_PER_GPU];
    uint32_t claim_count = 0;
    uint32_t active = 0;
    for (uint32_t i = 0; i < count && claim_count < SEATS_PER_GPU; i++) {
        read_seat(&seats[i], now_ns);
        active += is_active(&seats[i], now_ns) != 0;
        if (claim_of(&seats[i], now_ns, &claims[claim_count]))
            claimants[claim_count++] = &seats[i];
    }
    arbiter_decide(claims, claim_count);
    uint32_t written = 0;
    for (uint32_t i = 0; i < claim_count; i++) {
        struct arbiter_seat *seat = claimants[i];
        uint32_t others = active - (is_active(seat, now_ns) != 0);
        uint32_t grant = claims[i].grant;
        uint32_t apart =
            grant > seat->written_grant ? grant - seat->written_grant : seat->written_grant - grant;
        /* Small changes wait for the next renewal, as do reports that others are still there. */
        if (apart > 50 || seat->is_dirty || seat->written_ns + lifetime_ns / 8 < now_ns ||
            (others != 0) != (seat->was_contended != 0)) {
            seat->was_contended = others != 0;
            if (others != 0)
                seat->contended_ns = now_ns;
            written +=
                (uint32_t)write_seat(seat, grant, now_ns, now_ns + lifetime_ns, seat->contended_ns);
        }
    }
    return written;
}

uint32_t arbiter_tick(struct arbiter_seat *seats, uint32_t count, uint64_t now_ns,
                      uint64_t lifetime_ns)
{
    uint32_t written = 0;
    for (uint32_t from = 0; from < count;) {
        uint32_t to = from + 1;
        while (to < count && seats[to].gpu == seats[from].gpu)
            to++;
        written += tick_gpu(seats + from, to - from, now_ns, lifetime_ns);
        from = to;
    }
    return written;
}

void arbiter_withdraw(struct arbiter_seat *seats, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        memset(seats[i].ratios, 0, sizeof seats[i].ratios);
        write_seat(&seats[i], 0, 0, 0, 0);
    }
}
