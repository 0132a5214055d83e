/*
 * The slots of the usage file: claiming one, clearing those of the dead, repairing words.
 *
 * A slot belongs to the process that its owner word names, and only that process writes its words.
 * To clear a dead process's slot, the living one first makes itself the owner. So at every moment
 * one process answers for a slot, and when that one is killed as well, the next takes over in the
 * same way: nothing is ever left locked.
 */

#include "account.h"
#include "liveness.h"

static uint64_t *word_of(uint32_t device, uint32_t slot)
{
    return &account.holdings[device].words[slot];
}

/* A damaged mark means all slots: too many costs time, too few would cost the cap. */
uint32_t slots_in_use(void)
{
    uint64_t word = shared_load(account.mark);
    uint64_t mark = usage_decode(word);
    if (mark <= account.slot_count)
        return (uint32_t)mark;
    shared_swap(account.mark, word, usage_encode(account.slot_count));
    return account.slot_count;
}

static void raise_mark(uint32_t mark)
{
    for (;;) {
        uint64_t word = shared_load(account.mark);
        uint64_t current = usage_decode(word);
        if (current >= mark && current <= account.slot_count)
            return;
        uint64_t wanted = current > account.slot_count ? account.slot_count : mark;
        shared_swap(account.mark, word, usage_encode(wanted));
    }
}

/* --- claiming ------------------------------------------------------------------------------ */

static void move_in(uint32_t slot)
{
    /* Everybody must look at this slot before there can be anything in it. */
    raise_mark(slot + 1);
    for (uint32_t device = 0; device < account.device_count; device++) {
        struct holding *holding = &account.holdings[device];
        private_store(holding->own, word_of(device, slot));
        slots_settle(holding);
    }
    __atomic_store_n(&account.owner, &account.owners[slot], __ATOMIC_RELEASE);
}

/* Gives up a slot that we own. */
static void vacate(uint32_t slot)
{
    for (uint32_t device = 0; device < account.device_count; device++)
        __atomic_store_n(word_of(device, slot), USAGE_FREE, __ATOMIC_SEQ_CST);
    shared_swap(&account.owners[slot], account.self, USAGE_FREE);
}

void slots_vacate_leftovers(void)
{
    uint32_t count = slots_in_use();
    for (uint32_t slot = 0; slot < count; slot++)
        if (shared_load(&account.owners[slot]) == account.self)
            vacate(slot);
}

static bool take_free(uint32_t from, uint32_t to)
{
    for (uint32_t slot = from; slot < to; slot++)
        if (shared_load(&account.owners[slot]) == USAGE_FREE &&
            shared_swap(&account.owners[slot], USAGE_FREE, account.self)) {
            move_in(slot);
            return true;
        }
    return false;
}

/* Our old slot, when its owner word was damaged: no other process takes one that names nobody. */
static bool take_back(void)
{
    if (account.owner < account.owners || account.owner >= account.owners + account.slot_count)
        return false;
    uint64_t owner = shared_load(account.owner);
    if (owner != USAGE_FREE && usage_decode(owner) != UINT64_MAX)
        return false;
    if (!shared_swap(account.owner, owner, account.self))
        return false;
    move_in((uint32_t)(account.owner - account.owners));
    return true;
}

bool slots_claim(void)
{
    /* The fewer slots are in use, the faster is every addition: reuse before reaching further. */
    if (take_back() || take_free(0, slots_in_use()))
        return true;
    slots_sweep();
    return take_free(0, account.slot_count);
}

/* --- clearing ------------------------------------------------------------------------------ */

void slots_sweep(void)
{
    uint32_t count = slots_in_use();
    for (uint32_t slot = 0; slot < count; slot++) {
        uint64_t owner = shared_load(&account.owners[slot]);
        if (owner == USAGE_FREE || owner == account.self || !liveness_is_dead(owner))
            continue;
        if (shared_swap(&account.owners[slot], owner, account.self))
            vacate(slot);
    }
}

/* --- repairing ----------------------------------------------------------------------------- */

/*
 * Threads of this process add to the truth first and to the word after, and subtract from the word
 * first: the truth always contains what is kept. Whoever finds the two different (another thread is
 * half-way, or the word was damaged) brings them together here: the truth is read after the word,
 * so the word that is put there contains everything that is kept, whatever happens in between.
 */
void slots_settle(struct holding *holding)
{
    for (;;) {
        uint64_t *own = private_load(holding->own);
        uint64_t word = shared_load(own);
        uint64_t truth = shared_load(&holding->truth);
        if (word == truth)
            return;
        shared_swap(own, word, truth);
    }
}

/* A damaged word in a slot that nobody owns stands for nothing. */
static bool repair_free(uint32_t slot, uint64_t *word, uint64_t damaged)
{
    return shared_load(&account.owners[slot]) == USAGE_FREE &&
           shared_swap(word, damaged, USAGE_FREE);
}

uint64_t slots_total(struct holding *holding)
{
    uint64_t total = 0;
    uint32_t count = slots_in_use();
    for (uint32_t slot = 0; slot < count; slot++) {
        uint64_t *at = &holding->words[slot];
        uint64_t word = shared_load(at);
        uint64_t value = usage_decode(word);
        if (value == UINT64_MAX && at == private_load(holding->own)) {
            slots_settle(holding);
            value = usage_decode(shared_load(&holding->truth));
        } else if (value == UINT64_MAX) {
            if (!repair_free(slot, at, word))
                return UINT64_MAX;
            value = 0;
        }
        total += value;
    }
    return total;
}
