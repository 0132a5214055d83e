/*
 * A hash table in stripes: open addressing, a lock and a growth of its own for each stripe.
 */
#include "allocations.h"

#include <stddef.h>
#include <sys/mman.h>

#include "private.h"
#include "spin.h"

enum { STRIPE_BITS = 4, STRIPES = 1 << STRIPE_BITS, SLOTS_AT_FIRST = 128 };

/* An empty slot has no holders. */
struct slot {
    uint64_t key;
    uint64_t owner;
    uint64_t bytes;
    uint32_t holders;
    uint16_t device;
    uint16_t kind;
};

struct stripe {
    _Alignas(64) uint32_t lock;
    uint32_t count;
    uint64_t mask; /* one less than there are slots, a power of two */
    struct slot *slots;
};

static void *root;

static inline uint64_t scatter(uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 32;
}

/* The stripe that a key belongs to, locked; NULL when there is no memory for any. */
static inline struct stripe *lock_stripe(uint64_t scattered)
{
    struct stripe *stripe = private_root(&root, STRIPES * sizeof(struct stripe));
    if (__builtin_expect(stripe == NULL, 0))
        return NULL;
    stripe += scattered >> (64 - STRIPE_BITS);
    spin_lock(&stripe->lock);
    return stripe;
}

static inline void describe(const struct slot *slot, struct allocation *allocation)
{
    allocation->bytes = slot->bytes;
    allocation->owner = slot->owner;
    allocation->device = slot->device;
}

/* The key's slot, or the empty one where it would go. */
static inline struct slot *seek(const struct stripe *stripe, unsigned kind, uint64_t key,
                                uint64_t scattered)
{
    for (uint64_t place = scattered & stripe->mask;; place = (place + 1) & stripe->mask) {
        struct slot *slot = &stripe->slots[place];
        if (slot->holders == 0 || (slot->key == key && slot->kind == kind))
            return slot;
    }
}

/* Kept at most half full, so that a search ends after a step or two. */
static bool grow(struct stripe *stripe)
{
    const uint64_t old_slots = stripe->slots == NULL ? 0 : stripe->mask + 1;
    struct stripe larger = *stripe;
    larger.mask = (old_slots == 0 ? SLOTS_AT_FIRST : 2 * old_slots) - 1;
    larger.slots = private_pages((larger.mask + 1) * sizeof(struct slot));
    if (larger.slots == NULL)
        return false;
    for (uint64_t i = 0; i < old_slots; i++) {
        const struct slot *slot = &stripe->slots[i];
        if (slot->holders != 0)
            *seek(&larger, slot->kind, slot->key, scatter(slot->key)) = *slot;
    }
    if (stripe->slots != NULL)
        munmap(stripe->slots, old_slots * sizeof(struct slot));
    stripe->mask = larger.mask;
    stripe->slots = larger.slots;
    return true;
}

/* Closes the gap: what comes after it and could have gone there moves up. */
static void erase(struct stripe *stripe, struct slot *slot)
{
    uint64_t gap = (uint64_t)(slot - stripe->slots);
    for (uint64_t next = (gap + 1) & stripe->mask;; next = (next + 1) & stripe->mask) {
        const struct slot *follower = &stripe->slots[next];
        if (follower->holders == 0)
            break;
        const uint64_t home = scatter(follower->key) & stripe->mask;
        if (((next - home) & stripe->mask) >= ((next - gap) & stripe->mask)) {
            stripe->slots[gap] = *follower;
            gap = next;
        }
    }
    stripe->slots[gap].holders = 0;
    stripe->count--;
}

/* The key's slot in a locked stripe, made when it is not there; NULL without memory for it. */
static inline struct slot *seek_or_make(struct stripe *stripe, enum kind kind, uint64_t key,
                                        uint64_t scattered, int device, uint64_t owner)
{
    if (__builtin_expect(2 * (uint64_t)stripe->count >= stripe->mask, 0) && !grow(stripe))
        return NULL;
    struct slot *slot = seek(stripe, kind, key, scattered);
    if (slot->holders == 0) {
        stripe->count++;
        slot->key = key;
        slot->owner = owner;
        slot->bytes = 0;
        slot->device = (uint16_t)device;
        slot->kind = (uint16_t)kind;
    }
    return slot;
}

enum standing allocation_join(enum kind kind, uint64_t key, uint64_t bytes, int device,
                              uint64_t owner)
{
    const uint64_t scattered = scatter(key);
    struct stripe *stripe = lock_stripe(scattered);
    if (__builtin_expect(stripe == NULL, 0))
        return STANDING_NONE;
    enum standing standing = STANDING_NONE;
    struct slot *slot = seek_or_make(stripe, kind, key, scattered, device, owner);
    if (__builtin_expect(slot != NULL, 1)) {
        standing = slot->holders == 0 ? STANDING_ALONE : STANDING_SHARED;
        if (standing == STANDING_ALONE)
            slot->bytes = bytes;
        slot->holders++;
    }
    spin_unlock(&stripe->lock);
    return standing;
}

enum standing allocation_leave(enum kind kind, uint64_t key, struct allocation *allocation)
{
    const uint64_t scattered = scatter(key);
    struct stripe *stripe = lock_stripe(scattered);
    if (__builtin_expect(stripe == NULL, 0))
        return STANDING_NONE;
    enum standing standing = STANDING_NONE;
    struct slot *slot = stripe->slots != NULL ? seek(stripe, kind, key, scattered) : NULL;
    if (slot != NULL && slot->holders != 0) {
        describe(slot, allocation);
        standing = slot->holders == 1 ? STANDING_ALONE : STANDING_SHARED;
        if (standing == STANDING_ALONE)
            erase(stripe, slot);
        else
            slot->holders--;
    }
    spin_unlock(&stripe->lock);
    return standing;
}

bool allocation_find(enum kind kind, uint64_t key, struct allocation *allocation)
{
    const uint64_t scattered = scatter(key);
    struct stripe *stripe = lock_stripe(scattered);
    if (stripe == NULL)
        return false;
    const struct slot *slot = stripe->slots != NULL ? seek(stripe, kind, key, scattered) : NULL;
    const bool is_known = slot != NULL && slot->holders != 0;
    if (is_known)
        describe(slot, allocation);
    spin_unlock(&stripe->lock);
    return is_known;
}

bool allocation_grow(enum kind kind, uint64_t key, uint64_t bytes, int device, uint64_t owner)
{
    const uint64_t scattered = scatter(key);
    struct stripe *stripe = lock_stripe(scattered);
    if (stripe == NULL)
        return false;
    struct slot *slot = seek_or_make(stripe, kind, key, scattered, device, owner);
    if (slot != NULL) {
        slot->bytes += bytes;
        slot->holders += slot->holders == 0;
    }
    spin_unlock(&stripe->lock);
    return slot != NULL;
}

static bool ends_with_owner(const struct slot *slot)
{
    switch ((enum kind)slot->kind) {
    case KIND_ADDRESS:
    case KIND_POOLED:
    case KIND_ARRAY:
    case KIND_MIPMAP:
    case KIND_EXTERNAL:
    case KIND_MODULE:
    case KIND_TILE:
        return true;
    default:
        return false;
    }
}

/* Forgets some of what ends with the owner, and tells how many. */
static unsigned take_ended(uint64_t first, uint64_t owner, struct allocation *taken, unsigned most)
{
    unsigned count = 0;
    struct stripe *stripe = lock_stripe(first);
    if (stripe == NULL)
        return 0;
    for (uint64_t place = 0; stripe->slots != NULL && place <= stripe->mask && count < most;) {
        struct slot *slot = &stripe->slots[place];
        if (slot->holders == 0 || slot->owner != owner || !ends_with_owner(slot)) {
            place++;
            continue;
        }
        /* The gap may be closed with one that ends as well: the same place again. */
        describe(slot, &taken[count]);
        taken[count].kind = (enum kind)slot->kind;
        taken[count++].key = slot->key;
        erase(stripe, slot);
    }
    spin_unlock(&stripe->lock);
    return count;
}

void allocation_end(uint64_t owner, void (*ended)(const struct allocation *allocation))
{
    enum { BATCH = 64 };
    struct allocation taken[BATCH];
    for (uint64_t i = 0; i < STRIPES;) {
        const unsigned count = take_ended(i << (64 - STRIPE_BITS), owner, taken, BATCH);
        for (unsigned number = 0; number < count; number++)
            ended(&taken[number]);
        i += count < BATCH;
    }
}
