/*
 * The memory account: what fits under the cap is booked, what does not is refused.
 *
 * Why the cap holds, with no lock and no total. Every process has one word per device. To reserve,
 * it (1) adds the bytes to its own word, then (2) adds up the words of all slots, and keeps the
 * reservation only if that sum is within the cap; else it takes the bytes back. To release, it
 * subtracts after the driver has freed. All of these are sequentially consistent.
 *
 *   Take any moment, and of the reservations that are then kept, the one whose addition (1) came
 *   last. Its walk (2) began after its addition, so after the additions of all the others, and none
 *   of them had been subtracted yet when it read them. So the sum it found within the cap
 *   contained all of them: what is held at that moment is within the cap. A slot that is claimed
 *   for the first time is announced by the mark before anything is added to it, and the walk reads
 *   the mark after its own addition, so the walk misses no slot.
 *
 * A walk may also see additions that will be taken back, and so refuse what would have fitted. That
 * is settled at the edge: whoever has been refused by its first walk waits for its turn and then
 * walks again, while the others who were refused wait with nothing added. The turn is a courtesy:
 * no promise about the cap depends on it, and a turn whose owner died is passed by.
 *
 * Damage: a sum that contains a damaged word is (all but surely) no sum of code words, and comes
 * out of usage_total larger than any cap.
 */

#define _GNU_SOURCE
#include "ledger.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "account.h"
#include "liveness.h"
#include "say.h"
#include "ticks.h"

#define COLD __attribute__((noinline, cold))

enum {
    TURN_ATTEMPTS = 512, /* how often one yields while waiting for the turn */
    TURN_CHECK = 64,     /* after so many it is checked whether the owner lives */
    WALKS = 4,           /* with the turn: how often one yields to those about to take back */
    SWEEP_NS = 500000000,
};

bool ledger_ready(void)
{
    return likely(account_is_open()) || account_open();
}

unsigned ledger_devices(void)
{
    return ledger_ready() ? account.device_count : 0;
}

int ledger_find(const uint8_t uuid[16])
{
    unsigned count = ledger_devices();
    for (unsigned device = 0; device < count; device++)
        if (memcmp(account.uuids[device], uuid, LIMITS_UUID_BYTES) == 0)
            return (int)device;
    return -1;
}

const uint8_t *ledger_uuid(unsigned device)
{
    return account.uuids[device];
}

/* The address of a holding, fixed in a register: else GCC computes it anew for every field. */
static inline struct holding *holding_of(unsigned device)
{
    struct holding *holding = &account.holdings[device];
    __asm__("" : "+r"(holding));
    return holding;
}

/* --- adding -------------------------------------------------------------------------------- */

/*
 * Adds to the truth and to our word, and tells what the word should say now. False: the two did not
 * agree before (the word was damaged, or another thread is half-way through the same).
 */
static inline bool add(struct holding *holding, uint64_t code, uint64_t *word)
{
    uint64_t before = __atomic_fetch_add(&holding->truth, code, __ATOMIC_RELAXED);
    *word = before + code;
    return likely(shared_add(private_load(holding->own), code) == before);
}

COLD static void add_surely(struct holding *holding, uint64_t code)
{
    uint64_t word;
    if (!add(holding, code, &word))
        slots_settle(holding);
}

/*
 * The other way round: from our word first. Were it the truth first, another thread could settle
 * the word by it before we subtract from the word as well, and for that moment it would say too
 * little. False: the word does not say the truth now.
 */
static inline bool subtract(struct holding *holding, uint64_t code)
{
    uint64_t *own = private_load(holding->own);
    shared_add(own, -code);
    uint64_t truth = __atomic_sub_fetch(&holding->truth, code, __ATOMIC_RELAXED);
    return likely(shared_load(own) == truth);
}

COLD static void subtract_surely(struct holding *holding, uint64_t code)
{
    if (!subtract(holding, code))
        slots_settle(holding);
}

/* Always true, to be the last call of those who have kept a reservation. */
COLD static bool raise_peak(struct holding *holding, uint64_t sum_word)
{
    uint64_t peak = private_load(holding->counters->peak);
    while (peak < sum_word &&
           !__atomic_compare_exchange_n(&holding->counters->peak, &peak, sum_word, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return true;
}

static uint64_t add_up(const uint64_t *words, uint64_t count)
{
    uint64_t sum = 0;
    const uint64_t *end = words + count;
    for (; end - words >= 4; words += 4)
        sum += shared_load(words) + shared_load(words + 1) + shared_load(words + 2) +
               shared_load(words + 3);
    for (; words < end; words++)
        sum += shared_load(words);
    return sum;
}

/* Whether what all processes have added is within the cap. Anything odd counts as no. */
static bool fits(struct holding *holding)
{
    uint64_t count = usage_total(shared_load(account.mark), 1);
    if (unlikely(count > account.slot_count))
        return false;
    uint64_t sum = add_up(holding->words, count);
    if (unlikely(usage_total(sum, count) > private_load(holding->cap_bytes)))
        return false;
    uint64_t sum_word = sum - count + 1;
    if (unlikely(sum_word > private_load(holding->counters->peak)))
        raise_peak(holding, sum_word);
    return true;
}

/* --- at the edge of the cap ---------------------------------------------------------------- */

static bool try_once(struct holding *holding, uint64_t bytes, int walks)
{
    add_surely(holding, bytes * USAGE_CODE);
    for (int walk = 0; walk < walks; walk++) {
        if (walk > 0)
            sched_yield();
        /* The second look repairs what it can and names what it cannot. */
        if (fits(holding) || (slots_total(holding) <= private_load(holding->cap_bytes)))
            return true;
    }
    subtract_surely(holding, bytes * USAGE_CODE);
    return false;
}

static bool take_turn(uint64_t *edge)
{
    for (int attempt = 1; attempt <= TURN_ATTEMPTS; attempt++) {
        uint64_t holder = shared_load(edge);
        bool is_vacant = holder == USAGE_FREE || usage_decode(holder) == UINT64_MAX ||
                         (attempt % TURN_CHECK == 0 && liveness_is_dead(holder));
        if (is_vacant && shared_swap(edge, holder, account.self))
            return true;
        sched_yield();
    }
    return false;
}

COLD static bool decide_at_edge(struct holding *holding, uint64_t bytes)
{
    uint64_t *edge = &holding->counters->edge;
    if (!take_turn(edge))
        return try_once(holding, bytes, 1);
    bool granted = try_once(holding, bytes, WALKS);
    shared_swap(edge, account.self, USAGE_FREE);
    return granted;
}

COLD static void refuse(unsigned device, uint64_t bytes)
{
    struct holding *holding = holding_of(device);
    __atomic_add_fetch(&holding->counters->refused, USAGE_CODE, __ATOMIC_RELAXED);
    if (account.is_logging)
        say("refused %llu bytes on GPU %u: %llu of %llu in use, process %d (%s)",
            (unsigned long long)bytes, device, (unsigned long long)ledger_used(device),
            (unsigned long long)holding->limit_bytes, (int)getpid(), program_invocation_short_name);
}

COLD static bool reserve_slowly(unsigned device, uint64_t bytes)
{
    struct holding *holding = holding_of(device);
    if (!account_refresh())
        return false;
    if (private_load(holding->limit_bytes) == UINT64_MAX && bytes < USAGE_VALUE_MAX) {
        add_surely(holding, bytes * USAGE_CODE); /* others' damage is no reason without a cap */
        return true;
    }
    if (bytes <= private_load(holding->cap_bytes)) {
        if (try_once(holding, bytes, 1))
            return true;
        slots_sweep();
        if (decide_at_edge(holding, bytes))
            return true;
    }
    refuse(device, bytes);
    return false;
}

/* --- what the hooks call ------------------------------------------------------------------- */

COLD static bool take_back_and_reserve(unsigned device, uint64_t bytes)
{
    subtract_surely(holding_of(device), bytes * USAGE_CODE);
    return reserve_slowly(device, bytes);
}

__attribute__((noinline)) static bool keep_among_many(unsigned device, uint64_t bytes)
{
    return likely(fits(holding_of(device))) || take_back_and_reserve(device, bytes);
}

/* The mark while one slot has ever been claimed: then our word alone is the sum. */
#define ONLY_ONE (USAGE_CODE + UINT64_C(1))

/* Calls stand only where nothing comes after them, so that no register has to be saved. */
bool ledger_reserve(unsigned device, uint64_t bytes)
{
    struct holding *holding = holding_of(device);
    if (unlikely(!account_is_current() || bytes > private_load(holding->cap_bytes)))
        return reserve_slowly(device, bytes);
    uint64_t word;
    if (unlikely(!add(holding, bytes * USAGE_CODE, &word)))
        return take_back_and_reserve(device, bytes);
    if (shared_load(account.mark) != ONLY_ONE)
        return keep_among_many(device, bytes);
    if (unlikely(word > private_load(holding->cap_word)))
        return take_back_and_reserve(device, bytes);
    if (unlikely(word > private_load(holding->counters->peak)))
        return raise_peak(holding, word);
    return true;
}

/* Without a slot (a forked child, say) there is nothing of ours to give back from. */
COLD static void release_slowly(struct holding *holding, uint64_t code)
{
    if (!account_refresh())
        return;
    uint64_t held = private_load(holding->truth) - USAGE_FREE;
    subtract_surely(holding, code < held ? code : held);
}

void ledger_release(unsigned device, uint64_t bytes)
{
    struct holding *holding = holding_of(device);
    uint64_t code = bytes * USAGE_CODE;
    if (unlikely(!account_has_slot() || private_load(holding->truth) <= code))
        release_slowly(holding, code);
    else if (unlikely(!subtract(holding, code)))
        slots_settle(holding);
}

void ledger_force(unsigned device, uint64_t bytes)
{
    struct holding *holding = holding_of(device);
    if (!account_is_current() && !account_refresh())
        return;
    add_surely(holding, bytes * USAGE_CODE);
    uint64_t total = slots_total(holding);
    if (total <= USAGE_VALUE_MAX)
        raise_peak(holding, usage_encode(total));
}

COLD static uint64_t limit_after_refresh(unsigned device)
{
    account_refresh();
    return private_load(holding_of(device)->limit_bytes);
}

uint64_t ledger_limit(unsigned device)
{
    if (unlikely(!account_is_current()))
        return limit_after_refresh(device);
    return private_load(holding_of(device)->limit_bytes);
}

COLD static void sweep_if_due(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    private_store(account.swept_ticks, ticks());
    if (now_ns - private_load(account.swept_ns) < SWEEP_NS)
        return;
    private_store(account.swept_ns, now_ns);
    slots_sweep();
}

/* A damaged word counts as full under a cap; without one, it is only missing from the sum. */
COLD static uint64_t use_with_damage(const struct holding *holding)
{
    uint64_t limit_bytes = private_load(holding->limit_bytes);
    if (limit_bytes != UINT64_MAX)
        return limit_bytes;
    uint64_t total = 0;
    for (uint32_t slot = 0, count = slots_in_use(); slot < count; slot++) {
        uint64_t value = usage_decode(shared_load(&holding->words[slot]));
        total += value == UINT64_MAX ? 0 : value;
    }
    return total;
}

__attribute__((noinline)) static uint64_t use_of_many(struct holding *holding)
{
    uint64_t count = usage_total(shared_load(account.mark), 1);
    if (likely(count <= account.slot_count)) {
        uint64_t total = usage_total(add_up(holding->words, count), count);
        if (likely(total <= USAGE_VALUE_MAX))
            return total;
    }
    uint64_t total = slots_total(holding);
    return total != UINT64_MAX ? total : use_with_damage(holding);
}

COLD static uint64_t use_after_refresh(struct holding *holding)
{
    if (!account_refresh())
        return private_load(holding->limit_bytes);
    sweep_if_due();
    return use_of_many(holding);
}

uint64_t ledger_used(unsigned device)
{
    struct holding *holding = holding_of(device);
    if (unlikely(!account_has_slot() ||
                 ticks() - private_load(account.swept_ticks) > TICKS_PER_LOOK))
        return use_after_refresh(holding);
    if (shared_load(account.mark) != ONLY_ONE)
        return use_of_many(holding);
    uint64_t total = usage_total(shared_load(holding->words), 1);
    return likely(total <= USAGE_VALUE_MAX) ? total : use_of_many(holding);
}

COLD static uint64_t left_slowly(unsigned device, uint64_t *limit_bytes)
{
    *limit_bytes = ledger_limit(device);
    uint64_t used = ledger_used(device);
    return used < *limit_bytes ? *limit_bytes - used : 0;
}

uint64_t ledger_left(unsigned device, uint64_t *limit_bytes)
{
    const struct holding *holding = holding_of(device);
    /* Where we are the only process that ever was, there are no dead ones to look for. */
    if (unlikely(!account_is_current() || shared_load(account.mark) != ONLY_ONE))
        return left_slowly(device, limit_bytes);
    uint64_t limit = private_load(holding->limit_bytes);
    uint64_t used = usage_total(shared_load(holding->words), 1);
    *limit_bytes = limit;
    if (unlikely(used > limit))
        return left_slowly(device, limit_bytes);
    return limit - used;
}

uint64_t ledger_held(unsigned device)
{
    return ledger_ready() ? usage_decode(private_load(holding_of(device)->truth)) : 0;
}

bool ledger_knows_pid(int32_t pid)
{
    if (!ledger_ready())
        return false;
    uint32_t namespace_id = usage_name(account.self).namespace_id;
    for (uint32_t slot = 0, count = slots_in_use(); slot < count; slot++) {
        struct usage_name name = usage_name(shared_load(&account.owners[slot]));
        if (name.pid == pid && name.namespace_id == namespace_id)
            return true;
    }
    return false;
}
