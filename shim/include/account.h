/*
 * The account of this container as one process keeps it: where its words are in the usage file,
 * what they should say, and the caps it last read. ledger.c spends from it, slots.c looks after the
 * words that it shares with other processes, account.c opens it and keeps it current.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "account_files.h"
#include "limits_file.h"
#include "usage_file.h"

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* One device. Everything the hot path needs of it is in one cache line. */
struct holding {
    _Alignas(
        64) uint64_t cap_bytes; /* what totals are compared with; never above USAGE_VALUE_MAX */
    uint64_t truth;             /* what our word has to say; the word itself can be damaged */
    uint64_t *own;              /* our word ... */
    uint64_t *words;            /* ... and where those of all slots begin */
    struct usage_counters *counters;
    uint64_t cap_word;    /* cap_bytes as a code word */
    uint64_t limit_bytes; /* as the limits say it; UINT64_MAX: no cap */
};

struct account {
    uint64_t *owner;       /* who owns our slot, in the file; somewhere else while we have none */
    uint64_t self;         /* who should */
    const uint64_t *watch; /* a word of the limits that changes with them, and its last value */
    uint64_t watched;
    uint64_t *mark;   /* slots in use end here (code word) */
    uint64_t *owners; /* of all slots */
    uint32_t slot_count;
    uint32_t device_count;
    uint64_t swept_ticks; /* when dead processes were last looked for: by the cycle counter ... */
    uint64_t swept_ns;    /* ... and by the clock */
    bool is_logging;
    struct holding holdings[LIMITS_DEVICES];
    uint8_t uuids[LIMITS_DEVICES][LIMITS_UUID_BYTES];
};

/* Hidden, so that it is reached without a detour through the global offset table. */
extern struct account account __attribute__((visibility("hidden")));

/* The compute half, mapped with the memory half; budget.c keeps it. */
extern struct account_files account_compute;

/* What other threads may be changing, and where any order will do. */
#define private_load(variable) __atomic_load_n(&(variable), __ATOMIC_RELAXED)
#define private_store(variable, value) __atomic_store_n(&(variable), value, __ATOMIC_RELAXED)

/*
 * Sequentially consistent, because the cap rests on the order of one's own addition and the walk
 * over everybody's words (see ledger.c). On x86 the loads cost nothing extra.
 */
static inline uint64_t shared_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* Answers the value before, as the processor does. */
static inline uint64_t shared_add(uint64_t *word, uint64_t amount)
{
    return __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
}

static inline bool shared_swap(uint64_t *word, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

/* --- account.c ----------------------------------------------------------------------------- */

/* Opens the account once per process; false for good when it cannot be opened. */
bool account_open(void);
bool account_is_open(void);

/*
 * Whether nothing has happened that the slow path must see to: a slot that is not ours (never
 * claimed, lost in a fork, damaged) or limits that have changed.
 */
static inline bool account_has_slot(void)
{
    /* Who sees where our slot is also sees everything else about it, which was written before. */
    const uint64_t *owner = __atomic_load_n(&account.owner, __ATOMIC_ACQUIRE);
    return shared_load(owner) == private_load(account.self);
}

static inline bool account_is_current(void)
{
    return account_has_slot() &&
           private_load(*private_load(account.watch)) == private_load(account.watched);
}

/* Sees to all of that. False: there is no account to book in, so nothing may be handed out. */
bool account_refresh(void);

/* --- slots.c ------------------------------------------------------------------------------- */

/* How many slots were ever claimed; all of them when the mark is damaged. */
uint32_t slots_in_use(void);

/* Gives up what an earlier program of this very process has left behind (exec keeps the pid). */
void slots_vacate_leftovers(void);

/* Finds a slot and writes the truth into it; false when all are taken. */
bool slots_claim(void);

/* Clears the slots of dead processes. */
void slots_sweep(void);

/* Makes our word say the truth again. */
void slots_settle(struct holding *holding);

/*
 * The sum over all slots, word by word, repairing what can be repaired. UINT64_MAX when the word of
 * a living process is damaged: until it is repaired by its owner, the device counts as full.
 */
uint64_t slots_total(struct holding *holding);
