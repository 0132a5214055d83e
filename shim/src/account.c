/* Opens the account on first use, keeps it current, and gives every forked child one of its own. */

#define _GNU_SOURCE
#include "account.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "account_files.h"
#include "forks.h"
#include "liveness.h"
#include "say.h"
#include "sigbus.h"

enum phase { CLOSED, OPENING, OPEN, FAILED };

/* Where pointers lead while there is no slot: a word that never equals what is expected of it. */
static uint64_t nowhere;

struct account account = {.owner = &nowhere, .self = USAGE_FREE, .watch = &nowhere};

static struct account_files files;
struct account_files account_compute;
static int phase = CLOSED;
static bool is_mapped;
static int refreshing;

bool account_is_open(void)
{
    return __atomic_load_n(&phase, __ATOMIC_ACQUIRE) == OPEN;
}

static bool fail(const char *why)
{
    say("no GPU for this process: %s", why);
    return false;
}

/* --- limits -------------------------------------------------------------------------------- */

static void set_cap(struct holding *holding, uint64_t limit_bytes)
{
    uint64_t cap = limit_bytes < USAGE_VALUE_MAX ? limit_bytes : USAGE_VALUE_MAX;
    private_store(holding->limit_bytes, limit_bytes);
    private_store(holding->cap_bytes, cap);
    private_store(holding->cap_word, usage_encode(cap));
}

/* Which devices there are is settled at start; a device that the limits name no more gets nothing.
 */
static void adopt_caps(const struct limits_body *body)
{
    for (uint32_t device = 0; device < account.device_count; device++) {
        uint64_t limit_bytes = 0;
        for (uint32_t i = 0; i < body->head.device_count; i++)
            if (memcmp(body->devices[i].uuid, account.uuids[device], LIMITS_UUID_BYTES) == 0)
                limit_bytes = body->devices[i].limit_bytes;
        set_cap(&account.holdings[device], limit_bytes);
    }
}

/* A half-written or damaged update leaves the caps as they are, until something changes again. */
static bool reload_limits(void)
{
    uint64_t unreadable = private_load(*account.watch);
    struct limits_body body;
    struct limits_watch watch;
    int slot = limits_follow(files.limits, files.limits_bytes, ACCOUNT_MEMORY, &body, &watch);
    if (slot < 0) {
        private_store(account.watched, unreadable);
        return false;
    }
    adopt_caps(&body);
    private_store(account.watch, watch.word);
    private_store(account.watched, watch.seen);
    return true;
}

/* --- opening ------------------------------------------------------------------------------- */

static void lay_out(void)
{
    const struct usage_header *shape = &files.shape;
    char *start = files.usage;
    account.mark = (uint64_t *)(start + offsetof(struct usage_header, mark));
    account.owners = (uint64_t *)(start + shape->owners_at);
    account.slot_count = shape->slot_count;
    account.device_count = shape->device_count;
    struct usage_counters *counters = (struct usage_counters *)(start + shape->counters_at);
    uint64_t *words = (uint64_t *)(start + shape->words_at);
    for (uint32_t device = 0; device < account.device_count; device++) {
        struct holding *holding = &account.holdings[device];
        holding->words = words + (size_t)device * shape->slot_count;
        holding->counters = &counters[device];
        memcpy(account.uuids[device], files.body.devices[device].uuid, LIMITS_UUID_BYTES);
    }
}

static void hold_nothing(void)
{
    account.owner = &nowhere;
    for (uint32_t device = 0; device < LIMITS_DEVICES; device++) {
        account.holdings[device].truth = USAGE_FREE;
        account.holdings[device].own = &nowhere;
    }
}

/* Nothing that the parent holds is the child's: it books in a slot of its own, from nothing. */
static void start_as_child(void)
{
    phase = CLOSED;
    refreshing = 0;
    hold_nothing();
}

static bool map_files(void)
{
    char why[WHY_BYTES];
    if (!account_files_open(&files, &account_compute, why))
        return fail(why);
    hold_nothing();
    lay_out();
    if (!reload_limits())
        return fail("the limits were damaged while they were read");
    const char *log = secure_getenv("ALIQUOT_LOG");
    account.is_logging = log != NULL && strcmp(log, "1") == 0;
    is_mapped = true;
    return true;
}

static bool open_once(void)
{
    if (!is_mapped && !map_files())
        return false;
    if (files.usage_lost)
        return fail("the usage file was truncated");
    private_store(account.self, liveness_self());
    slots_vacate_leftovers();
    if (!slots_claim())
        return fail("every process slot of the usage file is taken");
    sigbus_rearm();
    return true;
}

/* Comes before anything that a child could inherit half-done. Twice does no harm. */
static bool watch_forks(void)
{
    static bool is_watching;
    if (!private_load(is_watching) && forks_watch(start_as_child))
        private_store(is_watching, true);
    return private_load(is_watching);
}

bool account_open(void)
{
    if (unlikely(!watch_forks()))
        return false;
    for (;;) {
        int found = CLOSED;
        if (__atomic_compare_exchange_n(&phase, &found, OPENING, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            bool opened = open_once();
            __atomic_store_n(&phase, opened ? OPEN : FAILED, __ATOMIC_RELEASE);
            return opened;
        }
        if (found != OPENING)
            return found == OPEN;
        sched_yield(); /* another thread is opening it */
    }
}

bool account_refresh(void)
{
    static bool said;
    if (!account_open())
        return false;
    while (__atomic_exchange_n(&refreshing, 1, __ATOMIC_ACQUIRE))
        sched_yield(); /* another thread is doing the same */
    bool usable = !files.usage_lost && (account_has_slot() || slots_claim());
    if (private_load(*account.watch) != account.watched)
        reload_limits();
    sigbus_rearm();
    /* Faults while claiming are found out only now. */
    usable = usable && !files.usage_lost;
    if (!usable && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        say("no more GPU memory for this process: the usage file was truncated or is full");
    __atomic_store_n(&refreshing, 0, __ATOMIC_RELEASE);
    return usable;
}
