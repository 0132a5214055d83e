/* Terms, dealing and reporting; see budget.h. */

#include "budget.h"

#include <string.h>

#include "account.h"
#include "ledger.h"
#include "liveness.h"

enum {
    DEAL_NS_MAX = 250000000,  /* time older than this is not dealt any more */
    RECENT_NS = 100000000,    /* work on the device "lately" */
    UNSEATED_PART = 16,       /* of the share, for a process that finds no slot */
    CLOCK_SLACK_NS = 1000000, /* collecting may run ahead of the own clock by so much */
};

static struct limits_body body;
static struct limits_watch watch;
static uint64_t self;
static uint32_t slot; /* ours, when the owner word says so */

/* What was last seen of the words that others write. */
static struct {
    uint64_t dealt_ns;
    uint64_t collected_at_ns;
    bool started;
} seen[LIMITS_DEVICES];

/* --- where the words are ------------------------------------------------------------------- */

static uint64_t *owners(void)
{
    return (uint64_t *)((char *)account_compute.usage + account_compute.shape.owners_at);
}

static uint64_t *word(enum usage_compute_measure measure, unsigned device, uint32_t at)
{
    uint64_t *words = (uint64_t *)((char *)account_compute.usage + account_compute.shape.words_at);
    size_t row = (size_t)measure * account_compute.shape.device_count + device;
    return &words[row * account_compute.shape.slot_count + at];
}

static struct usage_compute_counters *counters(unsigned device)
{
    return (struct usage_compute_counters *)((char *)account_compute.usage +
                                             account_compute.shape.counters_at) +
           device;
}

static uint64_t load(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static void store(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

static uint32_t slots_claimed(void)
{
    uint32_t mark = usage_mark(account_compute.usage);
    return mark <= account_compute.shape.slot_count ? mark : account_compute.shape.slot_count;
}

/* --- the own slot -------------------------------------------------------------------------- */

static void move_in(uint32_t to)
{
    slot = to;
    for (unsigned device = 0; device < account_compute.shape.device_count; device++) {
        for (unsigned measure = 0; measure < account_compute.shape.measure_count; measure++)
            store(word(measure, device, to), 0);
        seen[device].started = false;
    }
    uint64_t *mark =
        (uint64_t *)((char *)account_compute.usage + offsetof(struct usage_header, mark));
    uint64_t current = load(mark);
    while (slots_claimed() <= to &&
           !__atomic_compare_exchange_n(mark, &current, usage_encode(to + 1), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

static bool claim(bool from_the_dead)
{
    for (uint32_t at = 0; at < account_compute.shape.slot_count; at++) {
        uint64_t owner = __atomic_load_n(&owners()[at], __ATOMIC_SEQ_CST);
        bool is_ours = owner == self;
        bool is_free = owner == USAGE_FREE || usage_decode(owner) == UINT64_MAX;
        if (!is_ours && !is_free && !(from_the_dead && liveness_is_dead(owner)))
            continue;
        if (__atomic_compare_exchange_n(&owners()[at], &owner, self, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            move_in(at);
            return true;
        }
    }
    return false;
}

static bool has_slot(void)
{
    if (account_compute.usage_lost || account_compute.shape.measure_count != USAGE_MEASURES_MAX)
        return false;
    if (__atomic_load_n(&owners()[slot], __ATOMIC_RELAXED) == self || claim(false))
        return true;
    /* Whether somebody has died is worth asking only now and then. */
    static uint32_t asked;
    return asked++ % 256 == 0 && claim(true);
}

/* --- terms --------------------------------------------------------------------------------- */

/* A half-written or damaged update leaves the terms as they are. */
static void reread(void)
{
    if (account_compute.limits_lost || limits_unchanged(&watch))
        return;
    struct limits_body fresh;
    if (limits_follow(account_compute.limits, account_compute.limits_bytes, ACCOUNT_COMPUTE, &fresh,
                      &watch) >= 0)
        body = fresh;
}

bool budget_open(void)
{
    if (!ledger_ready())
        return false;
    body = account_compute.body;
    self = liveness_self();
    reread();
    return true;
}

void budget_forked(void)
{
    slot = 0;
    self = 0;
}

static const struct limits_device *limits_of(unsigned device)
{
    const uint8_t *uuid = ledger_uuid(device);
    for (uint32_t i = 0; i < body.head.device_count; i++)
        if (memcmp(body.devices[i].uuid, uuid, LIMITS_UUID_BYTES) == 0)
            return &body.devices[i];
    return NULL;
}

static uint32_t ratio_of(const struct limits_device *limits)
{
    for (unsigned i = 0; i < LIMITS_RATIOS; i++)
        if (limits->ratios[i].thousandths != 0 && limits->ratios[i].slot == slot)
            return limits->ratios[i].thousandths;
    return 1000;
}

bool budget_terms(unsigned device, uint64_t now_ns, struct terms *terms)
{
    reread();
    const struct limits_device *limits = limits_of(device);
    if (limits == NULL)
        return false;
    bool arbitrated = limits->grant_until_ns > now_ns;
    uint32_t rate = arbitrated ? limits->grant : limits->share;
    *terms = (struct terms){
        .rate = rate,
        .whole = limits->share >= LIMITS_WHOLE,
        .borrowed = rate > limits->share,
        .arbitrated = arbitrated,
        .contended = arbitrated && limits->contended_ns != 0,
        .ratio = arbitrated ? ratio_of(limits) : 1000,
    };
    return true;
}

/* --- dealing ------------------------------------------------------------------------------- */

/* What a slot can still take; the words are the tenant's, so anything may stand in them. */
static uint64_t room_of(unsigned device, uint32_t at)
{
    uint64_t accepts = load(word(USAGE_ACCEPTS_NS, device, at));
    uint64_t dealt = load(word(USAGE_DEALT_NS, device, at));
    uint64_t room = accepts - dealt;
    return accepts > dealt && room < UINT64_C(1) << 40 ? room : 0;
}

/*
 * All to one slot, as far as it has room, and on to the next ones; what nobody has room for lapses.
 * Which one is left to chance, so all get alike in the long run. Were every deal divided, processes
 * that launch long kernels would be ready at the same moments and run at the same time ever after,
 * and no span that they measure would be without slices of the others.
 */
static void deal_out(unsigned device, uint64_t tokens_ns, uint64_t chance)
{
    uint32_t count = slots_claimed();
    uint32_t hungry = 0;
    for (uint32_t at = 0; at < count; at++)
        hungry += room_of(device, at) > 0;
    if (hungry == 0)
        return;
    uint32_t skipped = (uint32_t)(chance % hungry);
    for (uint32_t step = 0; step < 2 * count && tokens_ns > 0; step++) {
        uint32_t at = step % count;
        uint64_t room = room_of(device, at);
        if (room == 0 || (skipped > 0 && skipped-- > 0))
            continue;
        uint64_t part = room < tokens_ns ? room : tokens_ns;
        __atomic_fetch_add(word(USAGE_DEALT_NS, device, at), part, __ATOMIC_RELAXED);
        tokens_ns -= part;
    }
}

/* Scatters a clock's reading: its high bits are as good as any dice. */
static uint64_t scattered(uint64_t now_ns)
{
    return now_ns * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static void deal(unsigned device, uint64_t now_ns, uint32_t rate)
{
    uint64_t *dealt_until = &counters(device)->dealt_until_ns;
    uint64_t last = load(dealt_until);
    if (last >= now_ns && last - now_ns < DEAL_NS_MAX)
        return;
    if (!__atomic_compare_exchange_n(dealt_until, &last, now_ns, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    /* A last deal in the future, or long ago, is damage or idleness: nothing to make up for. */
    uint64_t elapsed = last < now_ns ? now_ns - last : 0;
    if (elapsed > DEAL_NS_MAX)
        elapsed = 0;
    deal_out(device, elapsed * rate / LIMITS_WHOLE, scattered(now_ns));
}

int64_t budget_collect(unsigned device, uint64_t now_ns, uint32_t rate, int64_t room_ns)
{
    uint64_t since = seen[device].collected_at_ns;
    uint64_t elapsed = since < now_ns && since != 0 ? now_ns - since : 0;
    int64_t most = (int64_t)((elapsed + CLOCK_SLACK_NS) * rate / LIMITS_WHOLE);
    seen[device].collected_at_ns = now_ns;
    if (!has_slot()) {
        /* No account to share by: a small part of the share, by the own clock. */
        most /= UNSEATED_PART;
        return most < room_ns ? most : room_ns;
    }
    uint64_t *dealt = word(USAGE_DEALT_NS, device, slot);
    uint64_t *accepts = word(USAGE_ACCEPTS_NS, device, slot);
    if (!seen[device].started) {
        seen[device].dealt_ns = load(dealt);
        seen[device].started = true;
    }
    store(accepts, seen[device].dealt_ns + (uint64_t)(room_ns > 0 ? room_ns : 0));
    deal(device, now_ns, rate);
    uint64_t total = load(dealt);
    int64_t got = (int64_t)(total - seen[device].dealt_ns);
    seen[device].dealt_ns = total;
    if (got < 0)
        return 0;
    return got < most ? got : most;
}

bool budget_siblings(unsigned device, uint64_t now_ns)
{
    if (!has_slot())
        return false;
    uint32_t count = slots_claimed();
    for (uint32_t at = 0; at < count; at++)
        if (at != slot && load(word(USAGE_ACTIVE_NS, device, at)) + RECENT_NS > now_ns)
            return true;
    return false;
}

/* --- reporting ----------------------------------------------------------------------------- */

/* Writes the own count, and adds what it grew by to the container's. */
static void count(uint64_t *total, uint64_t *own, uint64_t value)
{
    uint64_t before = load(own);
    if (value > before)
        __atomic_fetch_add(total, value - before, __ATOMIC_RELAXED);
    store(own, value);
}

void budget_report(unsigned device, uint64_t now_ns, const struct report *report)
{
    if (!has_slot())
        return;
    struct usage_compute_counters *all = counters(device);
    count(&all->busy_ns, word(USAGE_BUSY_NS, device, slot), report->busy_ns);
    count(&all->throttled_ns, word(USAGE_THROTTLED_NS, device, slot), report->throttled_ns);
    count(&all->launches, word(USAGE_LAUNCHES, device, slot), report->launches);
    __atomic_fetch_add(&all->occupied_ns, report->occupied_ns, __ATOMIC_RELAXED);
    if (report->active) {
        store(word(USAGE_ACTIVE_NS, device, slot), now_ns);
        store(&all->active_ns, now_ns);
    }
    if (report->wanting)
        store(&all->wanted_ns, now_ns);
}
